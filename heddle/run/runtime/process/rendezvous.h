// Rendezvous: the ranks of a job connect to its store and wait for each other.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "heddle/run/runtime/process/store.h"

namespace heddle::run {

// Two connections to the store of the job: one for this rank's work, one for its Watch. And the
// names of all ranks' machines, by rank.
struct Connections {
  StorePtr store;
  StorePtr watched;
  std::vector<std::string> hosts;
};

// Waits until all ranks are connected. The waits for the store, for its answer and for missing
// ranks take at most about `timeout` in total. If two processes have the same rank, all waiting
// ranks fail immediately.
//
// After 3 s the lowest waiting rank calls `notice` once, with a line that names the missing ranks.
Result<Connections> Rendezvous(const PeerAddress& address, std::chrono::milliseconds timeout,
                               const std::function<void(const std::string&)>& notice);

}  // namespace heddle::run
