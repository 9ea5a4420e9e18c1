// Rendezvous: the ranks of a job connect to its store and wait for each other.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "heddle/runtime/process/store.h"

namespace heddle {

// Two connections to the store of the job: one for this rank's work, one for its Watch.
struct Connections {
  StorePtr store;
  StorePtr watched;
};

// Waits until all ranks are connected, at most about `timeout` wherever it has to wait: for a store
// that nobody opens, for a program on its port that does not answer, for ranks that are missing. Two
// processes with one rank fail immediately, as do the ranks that wait for others.
//
// After 3 s `notice` gets a line that names the ranks that are missing, once. Of the ranks that wait,
// only the lowest says so.
Result<Connections> Rendezvous(const PeerAddress& address, std::chrono::milliseconds timeout,
                               const std::function<void(const std::string&)>& notice);

}  // namespace heddle
