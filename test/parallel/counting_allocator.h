// An allocator of tensors that counts bytes, for the tests in this folder.
#pragma once

#include <cstdint>
#include <map>

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include "heddle/core/base/check.h"

namespace heddle {

// Counts the bytes of tensors while it exists, for each thread. A thread frees what it allocates.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(before_, kPriority); }

  c10::DataPtr allocate(size_t size) override {
    void* data = c10::alloc_cpu(size);
    if (data != nullptr) sizes[data] = size;
    live += static_cast<int64_t>(size);
    return {data, data, Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return Free; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

  static inline thread_local int64_t live = 0;
  static inline thread_local std::map<void*, size_t> sizes;

 private:
  static constexpr uint8_t kPriority = 255;
  static void Free(void* data) {
    if (data == nullptr) return;
    auto size = sizes.extract(data);
    HEDDLE_CHECK(!size.empty(), "a thread frees a tensor of another");
    live -= static_cast<int64_t>(size.mapped());
    c10::free_cpu(data);
  }

  c10::Allocator* before_;
};

}  // namespace heddle
