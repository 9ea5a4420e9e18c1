// Random graphs for tests, as text. A seed gives the same graph on every machine. All graphs verify
// and run.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace heddle {

// Random choices that depend only on the seed.
class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}

  // Returns a number from 0 to n - 1.
  size_t Pick(size_t n) { return static_cast<size_t>(random_() % n); }
  // Returns true once in `n` times.
  bool OneIn(size_t n) { return Pick(n) == 0; }
  template <typename T>
  const T& Of(const std::vector<T>& list) {
    return list[Pick(list.size())];
  }

 private:
  std::mt19937 random_;
};

// Returns a local graph on a mesh [dp=2,tp=2] with all features of local graphs:
//
// - views and arithmetic, some of it repeated and some of it unused
// - collectives of several tensors, on several communicators, with late waits
// - moves to host memory and back; random ops
// - parameters that are cast and gathered repeatedly
// - updates that take over the storage of state
// - scopes, phases and save decisions
std::string RandomLocalGraph(uint32_t seed);

}  // namespace heddle
