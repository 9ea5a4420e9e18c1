// StringTable: distinct strings, each once, named by a typed id.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/base/hash.h"
#include "heddle/base/id.h"
#include "heddle/base/pool.h"

namespace heddle {

template <typename IdT>
class StringTable {
 public:
  // Where a string is looked for. It holds until its text goes.
  class Key {
   public:
    explicit Key(std::string_view text) : text_(text), hash_(HashOf(text)) {}
    std::string_view text() const { return text_; }

   private:
    friend class StringTable;
    std::string_view text_;
    uint64_t hash_;
  };

  // For who knows a text some time before it asks for its id: memory is asked for what stands there.
  Key KeyOf(std::string_view text) const {
    Key key(text);
    index_.Prefetch(key.hash_);
    return key;
  }

  // The id of `text`, which is added if it is new. `text` may be a part of a string of this table.
  IdT Intern(std::string_view text) { return Intern(Key(text)); }
  IdT Intern(const Key& key) {
    uint32_t found = Lookup(key.text_, key.hash_);
    if (found != HashIndex::kNone) return IdT(found);
    auto number = static_cast<uint32_t>(ends_.size());
    AppendToPool(chars_, std::span<const char>(key.text_));
    ends_.push_back(static_cast<uint32_t>(chars_.size()));
    index_.Insert(key.hash_, number);
    return IdT(number);
  }

  // The id of `text`, or none.
  IdT Find(std::string_view text) const {
    uint32_t found = Lookup(text, HashOf(text));
    return found == HashIndex::kNone ? IdT() : IdT(found);
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
  // The last character is added, not mixed in: `mm_0` to `mm_9` lie side by side in the index, as they come and go together. A large
  // table waits for memory else.
  static uint64_t HashOf(std::string_view text) {
    if (text.empty()) return 0;
    std::string_view front = text.substr(0, text.size() - 1);
    bool is_short = front.size() <= ShortText::kLongest;
    uint64_t hash = is_short ? ShortText(front).Hash() : Hash64(front);
    return (hash >> 32) + static_cast<unsigned char>(text.back());
  }
  uint32_t Lookup(std::string_view text, uint64_t hash) const {
    if (text.size() > ShortText::kLongest)
      return index_.Find(hash, [&](uint32_t n) { return (*this)[IdT(n)] == text; });
    ShortText words(text);
    return index_.Find(hash, [&](uint32_t n) {
      std::string_view other = (*this)[IdT(n)];
      return other.size() == text.size() && ShortText(other) == words;
    });
  }

  std::vector<char> chars_;
  std::vector<uint32_t> ends_;
  HashIndex index_;
};

}  // namespace heddle
