#include "heddle/core/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <charconv>

#include <fmt/core.h>

namespace heddle {

uint64_t Hash64(const void* data, size_t size) { return XXH3_64bits(data, size); }

Hash128 HashWords128(std::span<const uint64_t> words) {
  XXH128_hash_t hash = XXH3_128bits(words.data(), words.size_bytes());
  return {hash.high64, hash.low64};
}

struct Hasher128::State {
  XXH3_state_t xxh;
};

Hasher128::Hasher128() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher128::~Hasher128() = default;

void Hasher128::Add(const void* data, size_t size) {
  XXH3_128bits_update(&state_->xxh, data, size);
}

Hash128 Hasher128::Get() const {
  XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.high64, hash.low64};
}

Hash128 HashBytes128(const void* data, size_t size) {
  XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.high64, hash.low64};
}

std::string Format(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::optional<Hash128> ParseHash128(std::string_view text) {
  Hash128 hash;
  auto read = [](std::string_view digits, uint64_t& word) {
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), word, 16);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  if (text.size() != 32 || !read(text.substr(0, 16), hash.high) || !read(text.substr(16), hash.low))
    return std::nullopt;
  return hash;
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
