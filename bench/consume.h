// Keeps the compiler from removing computations whose results are not used.
#pragma once

#include <memory>

#include <benchmark/benchmark.h>

namespace heddle {

// In some versions, benchmark::DoNotOptimize warns about temporaries and constants, but not about
// pointers.
template <typename T>
void Consume(T&& value) {
  auto* at = std::addressof(value);
  benchmark::DoNotOptimize(at);
  benchmark::ClobberMemory();
}

}  // namespace heddle
