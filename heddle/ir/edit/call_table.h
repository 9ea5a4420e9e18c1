// CallTable: facts of calls, each worked out once.
//
// Layers repeat, so most nodes of a graph are calls of one op with the same attributes and operand types as a call before.
// What follows from these alone (result types, work, factors) is looked up by a CallKey. Where a fact depends on more,
// the key gets more words.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "heddle/base/hash.h"
#include "heddle/ir/graph.h"

namespace heddle {

// Op, attributes and operand types of a node, and words that the caller adds. Reused from node to node. Keys of different
// graphs have nothing to do with each other.
class CallKey {
 public:
  void Assign(const Graph& graph, NodeId id) {
    const Node& node = graph[id];
    Clear();
    Add(uint64_t{node.op.index()} << 32 | node.attrs.index());
    for (ValueId v : graph.operands(id)) Add(v ? graph.type(v).index() : UINT32_MAX);
  }
  // For a key that is all the caller's.
  void Clear() { size_ = 0; }
  void Add(uint64_t word) {
    if (size_ == words_.size()) [[unlikely]]
      Grow();
    words_[size_++] = word;
  }
  std::span<const uint64_t> words() const { return {words_.data(), size_}; }

 private:
  // By itself, so that words are added without calls.
  [[gnu::noinline]] void Grow() { words_.resize(2 * size_ + 16); }

  // The first `size_` of them count.
  std::vector<uint64_t> words_;
  size_t size_ = 0;
};

template <typename Fact>
class CallTable {
 public:
  // The fact under `key`, or null.
  Fact* Find(const CallKey& key) {
    // Layers repeat: the call is likely the one that came behind the last one before.
    uint32_t likely = last_ < followers_.size() ? followers_[last_] : HashIndex::kNone;
    uint32_t found = likely != HashIndex::kNone && std::ranges::equal(WordsOf(likely), key.words())
                         ? likely
                         : Lookup(key);
    if (found == HashIndex::kNone) return nullptr;
    Follow(found);
    return &facts_[found];
  }
  // A fact under a key that has none yet. It stays where it is while others are added.
  Fact& Add(const CallKey& key, Fact fact) {
    auto number = static_cast<uint32_t>(facts_.size());
    index_.Insert(Hash64(key.words()), number);
    words_.insert(words_.end(), key.words().begin(), key.words().end());
    ends_.push_back(words_.size());
    followers_.push_back(HashIndex::kNone);
    Follow(number);
    return facts_.emplace_back(std::move(fact));
  }

 private:
  uint32_t Lookup(const CallKey& key) const {
    return index_.Find(Hash64(key.words()),
                       [&](uint32_t n) { return std::ranges::equal(WordsOf(n), key.words()); });
  }
  void Follow(uint32_t number) {
    if (last_ < followers_.size()) followers_[last_] = number;
    last_ = number;
  }
  std::span<const uint64_t> WordsOf(uint32_t n) const {
    size_t begin = n == 0 ? 0 : ends_[n - 1];
    return {words_.data() + begin, ends_[n] - begin};
  }

  // Words of all keys, and where those of each end.
  std::vector<uint64_t> words_;
  std::vector<size_t> ends_;
  HashIndex index_;
  std::deque<Fact> facts_;
  // The call that came behind each the last time, and the last call.
  std::vector<uint32_t> followers_;
  uint32_t last_ = HashIndex::kNone;
};

}  // namespace heddle
