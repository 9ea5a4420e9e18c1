#include "heddle/analysis/dependence.h"

#include <algorithm>
#include <array>

#include "heddle/ops/ops.h"

namespace heddle {
namespace {
// How many words of ancestors are carried through the graph at once. More would save walks and cost memory.
constexpr size_t kWords = 8;
}  // namespace

CollectiveDependence::CollectiveDependence(const Graph& graph) {
  std::vector<uint32_t> number(graph.node_count(), UINT32_MAX);
  for (NodeId id : graph.nodes()) {
    if (graph.op(id).effect() != Effect::kComm || graph[id].op == op::comm_wait) continue;
    number[id.index()] = static_cast<uint32_t>(collectives_.size());
    collectives_.push_back(id);
  }
  words_ = (collectives_.size() + 63) / 64;
  rows_.resize(collectives_.size() * words_);
  std::vector<std::array<uint64_t, kWords>> ancestors(graph.node_count());
  for (size_t block = 0; block < words_; block += kWords) {
    for (NodeId id : graph.nodes()) {
      std::array<uint64_t, kWords>& mine = ancestors[id.index()];
      mine.fill(0);
      for (ValueId value : graph.operands(id)) {
        NodeId producer = value ? graph[value].producer : NodeId();
        if (!producer) continue;
        const std::array<uint64_t, kWords>& theirs = ancestors[producer.index()];
        for (size_t w = 0; w < kWords; ++w) mine[w] |= theirs[w];
      }
      uint32_t n = number[id.index()];
      if (n == UINT32_MAX) continue;
      std::copy_n(mine.begin(), std::min(kWords, words_ - block),
                  rows_.begin() + static_cast<ptrdiff_t>(n * words_ + block));
      if (n / 64 >= block && n / 64 < block + kWords)
        mine[n / 64 - block] |= uint64_t{1} << (n % 64);
    }
  }
}

}  // namespace heddle
