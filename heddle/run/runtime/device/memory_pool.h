// MemoryPool: memory of libtorch's allocator that only the runs of one stream use, and that stays
// reserved until the pool is gone.
//
// A recorded run has addresses inside it, so nothing else may be placed there.
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

  // From Begin to End, allocations on the stream come from the pool. `captured`: its launches are
  // being recorded meanwhile.
  virtual void Begin(void* stream, bool captured) = 0;
  virtual void End(bool captured) = 0;
};

}  // namespace heddle::run
