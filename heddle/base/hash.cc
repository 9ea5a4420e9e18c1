#include "heddle/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>

#include <fmt/core.h>

namespace heddle {

uint64_t Hash64(const void* data, size_t size) { return XXH3_64bits(data, size); }

Hash128 HashWords128(std::span<const uint64_t> words) {
  XXH128_hash_t hash = XXH3_128bits(words.data(), words.size_bytes());
  return {hash.high64, hash.low64};
}

std::string Format(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

void HashIndex::Grow(size_t least) {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(std::bit_ceil(least < 16 ? 16 : least), Slot{});
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.number != kNone) Place(slot);
  }
}

}  // namespace heddle
