// StringTable: distinct strings, each once, named by a typed id.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/base/family_index.h"
#include "heddle/base/id.h"
#include "heddle/base/pool.h"

namespace heddle {

template <typename IdT>
class StringTable {
 public:
  // Where a string is looked for. It holds until its text goes.
  using Key = FamilyIndex::Key;

  // For who knows a text some time before it asks for its id: memory is asked for what stands there.
  Key KeyOf(std::string_view text) const {
    Key key(text);
    index_.Prefetch(key);
    return key;
  }

  // The id of `text`, which is added if it is new. `text` may be a part of a string of this table.
  IdT Intern(std::string_view text) { return Intern(Key(text)); }
  IdT Intern(const Key& key) {
    auto number = static_cast<uint32_t>(ends_.size());
    auto begin = static_cast<uint32_t>(chars_.size());
    uint32_t found = index_.FindOrAdd(key, chars_.data(), begin, number);
    if (found != number) return IdT(found);
    AppendToPool(chars_, std::span<const char>(key.text()));
    ends_.push_back(static_cast<uint32_t>(chars_.size()));
    return IdT(number);
  }

  // The id of `text`, or none.
  IdT Find(std::string_view text) const {
    uint32_t found = index_.Find(Key(text), chars_.data());
    return found == FamilyIndex::kNone ? IdT() : IdT(found);
  }

  std::string_view operator[](IdT id) const {
    uint32_t i = id.index();
    uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return {chars_.data() + begin, ends_[i] - begin};
  }

  // Whether `text` lies inside the table, and so moves when a string is added.
  bool Holds(std::string_view text) const { return IsPartOf(std::span<const char>(text), chars_); }

  size_t size() const { return ends_.size(); }
  IdRange<IdT> ids() const { return {0, ends_.size()}; }
  void Reserve(size_t count, size_t chars) {
    ends_.reserve(count);
    chars_.reserve(chars);
    index_.Reserve(count);
  }

 private:
  std::vector<char> chars_;
  std::vector<uint32_t> ends_;
  FamilyIndex index_;
};

}  // namespace heddle
