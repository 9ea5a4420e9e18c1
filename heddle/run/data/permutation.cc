#include "heddle/run/data/permutation.h"

#include <algorithm>
#include <bit>

#include "heddle/core/base/hash.h"

namespace heddle::run {
namespace {

// Four rounds of a Feistel network look random for large ranges. Small ranges need a few more.
constexpr int kRounds = 8;

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t key)
    : size_(size),
      key_(key),
      bits_(std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2)) {}

uint64_t Permutation::Scrambled(uint64_t i) const {
  uint64_t mask = (uint64_t{1} << bits_) - 1;
  uint64_t left = i >> bits_;
  uint64_t right = i & mask;
  for (int round = 0; round < kRounds; ++round) {
    uint64_t next = left ^ (Scramble(MixHash(key_ + static_cast<uint64_t>(round), right)) & mask);
    left = right;
    right = next;
  }
  return left << bits_ | right;
}

uint64_t Permutation::operator()(uint64_t i) const {
  do {
    i = Scrambled(i);
  } while (i >= size_);
  return i;
}

}  // namespace heddle::run
