// The store through which the ranks of a job find each other: keys and values behind a port.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "heddle/run/runtime/process/peer_address.h"

namespace heddle::run {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// A connection of this process to the store of its job; rank 0's first one opens it, unless a launcher has.
// Waits at most `left` for a store that does not exist yet. A program on that port that is not a
// store, and does not answer, makes it wait forever.
Result<StorePtr> ConnectStore(const PeerAddress& address, bool serve,
                              std::chrono::milliseconds timeout, std::chrono::milliseconds left);

// A store for processes of this machine, at a port that is free. It lives as long as what is returned.
struct OwnStore {
  StorePtr store;
  int64_t port = 0;
};
Result<OwnStore> OpenStore(std::chrono::milliseconds timeout);

std::vector<uint8_t> ToStore(std::string_view text);
std::string FromStore(const std::vector<uint8_t>& bytes);
// c10d logs what it also throws, with stacks. What it throws is enough, unless somebody asked for more by TORCH_CPP_LOG_LEVEL.
void QuietC10d();

// The first line of what c10d says; the rest is its stack.
std::string SaidByC10d(const std::exception& error);

}  // namespace heddle::run
