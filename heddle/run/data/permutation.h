// A permutation of 0 .. size-1 drawn from a key, without a table of it.
#pragma once

#include <cstdint>

namespace heddle::run {

// A Feistel network over the next power of four scrambles numbers in place; those that leave the range are scrambled again, and come
// back after fewer than four times on average.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);
  // Where `i`, which is less than the size, goes.
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t Scrambled(uint64_t i) const;

  uint64_t size_;
  uint64_t key_;
  // Of each of the two halves of a number.
  int bits_;
};

}  // namespace heddle::run
