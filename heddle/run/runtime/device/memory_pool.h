// MemoryPool: memory of libtorch's allocator that only the runs of one stream use. It stays
// reserved until the pool is destroyed.
//
// A recorded run contains addresses of this memory, so nothing else may use it.
#pragma once

#include <memory>

#include <c10/core/Device.h>

#include "heddle/core/base/result.h"

namespace heddle::run {

class MemoryPool {
 public:
  // Fails in a build without CUDA.
  static Result<std::unique_ptr<MemoryPool>> Make(c10::Device device);
  virtual ~MemoryPool() = default;

  // Between Begin and End, allocations on the stream use the pool. `captured`: its launches are
  // recorded meanwhile.
  virtual void Begin(void* stream, bool captured) = 0;
  virtual void End(bool captured) = 0;
};

}  // namespace heddle::run
