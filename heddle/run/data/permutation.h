// A permutation of 0 .. size-1 determined by a key, computed without a table.
#pragma once

#include <cstdint>

namespace heddle::run {

// A Feistel network permutes the numbers below the next power of four. A number that leaves the
// range is permuted again; it returns after fewer than four rounds on average.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);
  // Returns the image of `i`, which must be less than the size.
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t Scrambled(uint64_t i) const;

  uint64_t size_;
  uint64_t key_;
  // Bits of each half of a number.
  int bits_;
};

}  // namespace heddle::run
