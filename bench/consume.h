// What keeps the compiler from leaving out work whose result nobody reads.
#pragma once

#include <memory>

#include <benchmark/benchmark.h>

namespace heddle {

// benchmark::DoNotOptimize takes no temporary or constant without a warning in some versions; it always takes a pointer.
template <typename T>
void Consume(T&& value) {
  auto* at = std::addressof(value);
  benchmark::DoNotOptimize(at);
  benchmark::ClobberMemory();
}

}  // namespace heddle
