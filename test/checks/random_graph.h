// Random graphs for tests, as text. A seed gives the same graph on every machine. All of them verify and run.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace heddle {

// Choices that depend on the seed alone.
class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}

  // From 0 up to, not including, `n`.
  size_t Pick(size_t n) { return static_cast<size_t>(random_() % n); }
  // True once in `n` times.
  bool OneIn(size_t n) { return Pick(n) == 0; }
  template <typename T>
  const T& Of(const std::vector<T>& list) {
    return list[Pick(list.size())];
  }

 private:
  std::mt19937 random_;
};

// A local graph on a mesh [dp=2,tp=2], with everything that local graphs have: views and arithmetic, some of it repeated and
// some of it unused; collectives of several tensors, on several communicators, with late waits; moves to host memory and
// back; random ops; parameters that are cast and gathered again and again; updates that take over the storage of state;
// scopes, phases and save decisions.
std::string RandomLocalGraph(uint32_t seed);

}  // namespace heddle
