// Stable hashes (xxHash, XXH3): the same bytes give the same hash on every platform and in every
// run.
#pragma once

#include <compare>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
};

uint64_t Hash64(const void* data, size_t size);
inline uint64_t Hash64(std::string_view text) { return Hash64(text.data(), text.size()); }
template <typename T>
uint64_t Hash64(std::span<const T> items) {
  static_assert(std::has_unique_object_representations_v<T>, "padding would be hashed");
  return Hash64(items.data(), items.size_bytes());
}
Hash128 HashWords128(std::span<const uint64_t> words);

// Hashes bytes given in several parts. The boundaries between parts do not affect the hash.
class Hasher128 {
 public:
  Hasher128();
  ~Hasher128();
  void Add(const void* data, size_t size);
  Hash128 Get() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
Hash128 HashBytes128(const void* data, size_t size);

// As 32 hexadecimal digits, and back.
std::string Format(const Hash128& hash);
std::optional<Hash128> ParseHash128(std::string_view text);

// Combines two words into one. The order matters.
constexpr uint64_t MixHash(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return x ^ (x >> 29);
}

// A bijective scramble of 64 bits (splitmix64).
constexpr uint64_t Scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// An open-addressing index from hashes to dense numbers. The caller stores and compares the keys,
// so that the same index serves strings, types, attributes and nodes.
class HashIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The number stored under `hash` for which `equal(number)` holds, or kNone.
  template <typename Equal>
  uint32_t Find(uint64_t hash, Equal&& equal) const {
    if (slots_.empty()) return kNone;
    uint32_t tag = Fold(hash);
    for (size_t i = tag & mask_; slots_[i].number != kNone; i = (i + 1) & mask_) {
      if (slots_[i].tag == tag && equal(slots_[i].number)) return slots_[i].number;
    }
    return kNone;
  }

  void Insert(uint64_t hash, uint32_t number) {
    if (2 * (size_ + 1) > slots_.size()) Grow(2 * (size_ + 1));
    Place({Fold(hash), number});
    ++size_;
  }

  void Reserve(size_t n) {
    if (2 * n > slots_.size()) Grow(2 * n);
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t number = kNone;
  };

  static uint32_t Fold(uint64_t hash) { return static_cast<uint32_t>(hash ^ (hash >> 32)); }
  void Place(Slot slot) {
    size_t i = slot.tag & mask_;
    while (slots_[i].number != kNone) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
  void Grow(size_t least);

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace heddle
