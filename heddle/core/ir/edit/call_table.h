// CallTable: caches facts of calls.
//
// Layers repeat, so most nodes have the op, attributes and operand types of an earlier node. Facts
// that depend only on these (result types, work, factors) are looked up by a CallKey. If a fact
// depends on more, the caller adds words to the key.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Op, attributes and operand types of a node, and words that the caller adds. Reused between nodes.
// Keys of different graphs are unrelated.
class CallKey {
 public:
  void Assign(const Graph& graph, NodeId id) {
    const Node& node = graph[id];
    Clear();
    Add(uint64_t{node.op.index()} << 32 | node.attrs.index());
    for (ValueId v : graph.operands(id)) Add(v ? graph.type(v).index() : UINT32_MAX);
  }
  // For a key that consists only of the caller's words.
  void Clear() { words_.clear(); }
  void Add(uint64_t word) { words_.push_back(word); }
  std::span<const uint64_t> words() const { return words_; }

 private:
  std::vector<uint64_t> words_;
};

template <typename Fact>
class CallTable {
 public:
  // The fact for `key`, or null.
  Fact* Find(const CallKey& key) {
    uint32_t found = index_.Find(Hash64(key.words()), [&](uint32_t n) {
      return std::ranges::equal(WordsOf(n), key.words());
    });
    return found == HashIndex::kNone ? nullptr : &facts_[found];
  }
  // Adds a fact for a new key. The reference stays valid when others are added.
  Fact& Add(const CallKey& key, Fact fact) {
    auto number = static_cast<uint32_t>(facts_.size());
    index_.Insert(Hash64(key.words()), number);
    words_.insert(words_.end(), key.words().begin(), key.words().end());
    ends_.push_back(words_.size());
    return facts_.emplace_back(std::move(fact));
  }

 private:
  std::span<const uint64_t> WordsOf(uint32_t n) const {
    size_t begin = n == 0 ? 0 : ends_[n - 1];
    return {words_.data() + begin, ends_[n] - begin};
  }

  // The words of all keys, and the end of each key.
  std::vector<uint64_t> words_;
  std::vector<size_t> ends_;
  HashIndex index_;
  std::deque<Fact> facts_;
};

}  // namespace heddle
