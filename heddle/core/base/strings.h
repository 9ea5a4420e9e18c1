// StringTable: a set of distinct strings with typed ids.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/id.h"
#include "heddle/core/base/pool.h"

namespace heddle {

template <typename IdT>
class StringTable {
 public:
  // The id of `text`, which is added if it is new. `text` may be a part of a string of this table.
  IdT Intern(std::string_view text) {
    uint64_t hash = Hash64(text);
    uint32_t found = Lookup(text, hash);
    if (found != HashIndex::kNone) return IdT(found);
    auto number = static_cast<uint32_t>(ends_.size());
    AppendToPool(chars_, std::span<const char>(text));
    ends_.push_back(static_cast<uint32_t>(chars_.size()));
    index_.Insert(hash, number);
    return IdT(number);
  }

  // The id of `text`, or none.
  IdT Find(std::string_view text) const {
    uint32_t found = Lookup(text, Hash64(text));
    return found == HashIndex::kNone ? IdT() : IdT(found);
  }

  std::string_view operator[](IdT id) const {
    uint32_t i = id.index();
    uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return {chars_.data() + begin, ends_[i] - begin};
  }

  // Whether `text` is stored in the table, and therefore moves when a string is added.
  bool Holds(std::string_view text) const { return IsPartOf(std::span<const char>(text), chars_); }

  size_t size() const { return ends_.size(); }
  IdRange<IdT> ids() const { return {0, ends_.size()}; }
  void Reserve(size_t count, size_t chars) {
    ends_.reserve(count);
    chars_.reserve(chars);
    index_.Reserve(count);
  }

 private:
  uint32_t Lookup(std::string_view text, uint64_t hash) const {
    return index_.Find(hash, [&](uint32_t n) { return (*this)[IdT(n)] == text; });
  }

  std::vector<char> chars_;
  std::vector<uint32_t> ends_;
  HashIndex index_;
};

}  // namespace heddle
