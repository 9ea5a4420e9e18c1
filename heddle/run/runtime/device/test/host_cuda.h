// Runs the text of a CUDA kernel on a CPU. Each thread of a block is a fiber, which switches at
// barriers and shuffles. Between two of them, a seed determines the order of threads, so that a
// missing barrier changes results.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

namespace heddle::run::host_cuda {

struct Dim {
  unsigned x = 0;
};
inline Dim threadIdx;
inline Dim blockIdx;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
};
inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline size_t running = 0;
inline std::function<void()> body;
// The value that each thread passes to a shuffle.
inline std::vector<uint32_t> offered;
inline std::vector<uint64_t> dynamic_shared;

inline void Yield() { swapcontext(&fibers[running].context, &scheduler); }
inline void RunFiber() {
  body();
  fibers[running].done = true;
  Yield();
}

// Runs all blocks of a grid, one after the other. `step` must be odd: it permutes the threads of a
// block, whose number is a power of two.
inline void Launch(unsigned grid, unsigned block, size_t shared_bytes, unsigned step,
                   std::function<void()> kernel) {
  constexpr size_t kStack = 32768;
  body = std::move(kernel);
  offered.assign(block, 0);
  for (unsigned b = 0; b < grid; ++b) {
    // Poison: shared memory is not zero on a GPU.
    dynamic_shared.assign(shared_bytes / 8 + 1, 0x7fc17fc17fc17fc1u);
    fibers.clear();
    fibers.resize(block);
    for (Fiber& fiber : fibers) {
      fiber.stack = std::make_unique<char[]>(kStack);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, RunFiber, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (unsigned i = 0; i < block; ++i) {
        // Thread 0 is not the first.
        running = (i * step + step / 2 + 1) % block;
        if (fibers[running].done) continue;
        any = true;
        threadIdx.x = static_cast<unsigned>(running);
        blockIdx.x = b;
        swapcontext(&scheduler, &fibers[running].context);
      }
    }
  }
}

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline uint32_t __float_as_uint(float value) { return BitsOf(value); }
inline float rsqrtf(float value) { return 1 / std::sqrt(value); }
inline void __syncthreads() {
  Yield();
  // Other threads have changed the index at the barrier.
  threadIdx.x = static_cast<unsigned>(running);
}
inline float Shuffle(float value, size_t from) {
  size_t own = running;
  offered[own] = BitsOf(value);
  __syncthreads();
  float result = __uint_as_float(offered[from]);
  // Waits until all threads have read.
  __syncthreads();
  return result;
}
inline float __shfl_down_sync(uint32_t, float value, int offset) {
  size_t lane = running % 32;
  size_t other = lane + static_cast<size_t>(offset);
  return Shuffle(value, running - lane + (other < 32 ? other : lane));
}
inline float __shfl_xor_sync(uint32_t, float value, int mask) {
  return Shuffle(value, running ^ static_cast<size_t>(mask));
}
inline float __shfl_sync(uint32_t, float value, int lane) {
  return Shuffle(value, running - running % 32 + static_cast<size_t>(lane));
}

// Threads run one at a time.
inline uint32_t atomicAdd(uint32_t* at, uint32_t value) {
  uint32_t before = *at;
  *at += value;
  return before;
}
inline void __trap() { std::abort(); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }

inline uint16_t Narrow(float value) {
  uint32_t bits = BitsOf(value);
  if (std::isnan(value)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline uint32_t Narrow2(float low, float high) {
  return static_cast<uint32_t>(Narrow(high)) << 16 | Narrow(low);
}
inline uint32_t Max2(uint32_t a, uint32_t b) {
  auto larger = [](float x, float y) { return std::isnan(x) || x > y ? x : y; };
  return Narrow2(larger(__uint_as_float(a << 16), __uint_as_float(b << 16)),
                 larger(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u)));
}
inline void CopyAsync8(void* shared, const void* global) { std::memcpy(shared, global, 8); }
inline void WaitForCopies() {}

}  // namespace heddle::run::host_cuda
