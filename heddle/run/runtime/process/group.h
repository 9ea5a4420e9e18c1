// A c10d process group for the ranks of one communicator: Gloo on CPUs, NCCL on GPUs.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "heddle/run/runtime/process/store.h"

namespace heddle::run {

using GroupPtr = c10::intrusive_ptr<c10d::Backend>;

// Creates a group of `size` ranks, of which this process is `rank`. It accepts connections of the
// others at `addresses`. Throws what c10d throws.
GroupPtr MakeGlooGroup(const StorePtr& store, int64_t rank, int64_t size,
                       std::chrono::milliseconds timeout,
                       const std::vector<std::string>& addresses);
// The same between GPUs. NCCL chooses the interface. Throws if libtorch was built without NCCL.
GroupPtr MakeNcclGroup(const StorePtr& store, int64_t rank, int64_t size,
                       std::chrono::milliseconds timeout);

}  // namespace heddle::run
