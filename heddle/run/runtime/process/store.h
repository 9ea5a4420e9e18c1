// The key-value store through which the ranks of a job find each other.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "heddle/run/runtime/process/peer_address.h"

namespace heddle::run {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Connects this process to the store of its job. With `serve`, opens the store. Waits at most
// `left` for a store that does not exist yet. If another kind of program listens on that port and
// does not answer, the call never returns.
Result<StorePtr> ConnectStore(const PeerAddress& address, bool serve,
                              std::chrono::milliseconds timeout, std::chrono::milliseconds left);

// A store for processes of this machine, at a free port. It exists as long as the returned object.
struct OwnStore {
  StorePtr store;
  int64_t port = 0;
};
Result<OwnStore> OpenStore(std::chrono::milliseconds timeout);

std::vector<uint8_t> ToStore(std::string_view text);
std::string FromStore(const std::vector<uint8_t>& bytes);
// Silences c10d's log, which repeats its exceptions with stack traces. TORCH_CPP_LOG_LEVEL
// overrides this.
void QuietC10d();

// Returns the first line of a c10d error; the rest is a stack trace.
std::string C10dErrorMessage(const std::exception& error);

}  // namespace heddle::run
