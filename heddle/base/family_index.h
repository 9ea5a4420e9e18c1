// FamilyIndex: from strings to dense numbers, for names that come in families, as `mm_120` to `mm_129` do.
//
// Names that differ in one digit alone, the last of their number, stand in one entry, which is one line of the cache: they come and go
// together, and a large table waits for memory else. The strings live with the caller, one behind the other.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "heddle/base/hash.h"

namespace heddle {

class FamilyIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // A string as its family and which of it. A family is a stem, then a digit or none, then a tail: `.0` to `.9`, as one of several results
  // has it, or nothing. So `a1` is of the family of `a`, `a12` of another, and `a12.0` of that of `a17.0`.
  class Key {
   public:
    explicit Key(std::string_view text) : text_(text) {
      size_t size = text.size();
      size_t stem = size;
      if (size > 0 && IsDigit(text[size - 1])) {
        bool has_tail = size > 2 && text[size - 2] == '.' && IsDigit(text[size - 3]);
        stem = size - (has_tail ? 3 : 1);
        member_ = static_cast<uint32_t>(text[stem] - '0');
      }
      stem_size_ = static_cast<uint32_t>(stem);
      uint64_t hash = stem <= ShortText::kLongest ? ShortText(text.substr(0, stem)).Hash()
                                                  : Hash64(text.substr(0, stem));
      hash_ = static_cast<uint32_t>(hash ^ hash >> 32);
      // Families of one stem lie side by side.
      if (!tail().empty()) hash_ += static_cast<uint32_t>(text[size - 1] - '0') + 1;
    }
    std::string_view text() const { return text_; }

   private:
    friend class FamilyIndex;
    static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
    std::string_view stem() const { return text_.substr(0, stem_size_); }
    std::string_view tail() const {
      return member_ == kNoDigit ? std::string_view() : text_.substr(stem_size_ + 1);
    }

    std::string_view text_;
    uint32_t stem_size_;
    uint32_t hash_;
    uint32_t member_ = kNoDigit;
  };

  void Prefetch(const Key& key) const {
    if (!families_.empty()) __builtin_prefetch(&families_[key.hash_ & mask_]);
  }

  // The number of a string, or kNone. `chars` are those of all strings.
  uint32_t Find(const Key& key, const char* chars) const {
    if (families_.empty()) return kNone;
    const Family& family = families_[PlaceOf(key, chars)];
    return family.stem_begin == kNone ? kNone : family.numbers[key.member_];
  }
  // The same, for which a string that has none gets `number`. Its characters will be from `begin` on.
  uint32_t FindOrAdd(const Key& key, const char* chars, uint32_t begin, uint32_t number) {
    if (2 * (size_ + 1) > families_.size()) Grow(2 * (size_ + 1));
    Family& family = families_[PlaceOf(key, chars)];
    if (family.stem_begin == kNone) {
      family.hash = key.hash_;
      family.stem_begin = begin;
      family.stem_size = key.stem_size_;
      family.tail_size = static_cast<uint32_t>(key.tail().size());
      ++size_;
    }
    uint32_t& found = family.numbers[key.member_];
    if (found == kNone) {
      found = number;
      if (key.member_ == kMiddle) PrefetchNext(key.stem());
    }
    return found;
  }

  // For about this many strings. How many families they have is known to nobody; a table too small grows.
  void Reserve(size_t strings) {
    if (strings / 4 > families_.size()) Grow(strings / 4);
  }

 private:
  static constexpr uint32_t kNoDigit = 10;
  // The member that the next family is asked for with.
  static constexpr uint32_t kMiddle = 5;

  struct alignas(64) Family {
    uint32_t hash = 0;
    // The stem of the first string of the family, among the characters of all; kNone for an empty entry.
    uint32_t stem_begin = kNone;
    uint32_t stem_size = 0;
    uint32_t tail_size = 0;
    // By digit, and last the stem alone.
    uint32_t numbers[11] = {kNone, kNone, kNone, kNone, kNone, kNone,
                            kNone, kNone, kNone, kNone, kNone};
  };

  // Of the family, or of the empty entry where it belongs.
  size_t PlaceOf(const Key& key, const char* chars) const {
    size_t i = key.hash_ & mask_;
    while (families_[i].stem_begin != kNone && !IsOf(families_[i], key, chars)) i = (i + 1) & mask_;
    return i;
  }
  static bool IsOf(const Family& family, const Key& key, const char* chars) {
    std::string_view tail = key.tail();
    if (family.hash != key.hash_ || family.stem_size != key.stem_size_ ||
        family.tail_size != tail.size())
      return false;
    std::string_view stem(chars + family.stem_begin, family.stem_size);
    if (!tail.empty() && tail != std::string_view(stem.data() + stem.size() + 1, tail.size()))
      return false;
    if (stem.size() > ShortText::kLongest) return stem == key.stem();
    return ShortText(stem) == ShortText(key.stem());
  }
  // Behind `mm_12` likely comes `mm_13`.
  void PrefetchNext(std::string_view stem) const;
  void Grow(size_t least);

  std::vector<Family> families_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace heddle
