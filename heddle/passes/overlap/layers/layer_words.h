// LayerWords: what stands where in a schedule, told by layers of the graph that was scheduled.
//
// A word names a node by its slot in a layer, and by the number of the layer. Equal layers have the same slots; so a schedule of
// one layer, moved on by some layers, is the schedule of another.
#pragma once

#include <unordered_map>
#include <vector>

#include "heddle/analysis/equal_layers.h"
#include "heddle/base/hash.h"

namespace heddle {

class LayerWords {
 public:
  // `runs` are the equal layers of `before`, and outlive this. `after` is `before` scheduled; several collectives may have become one.
  LayerWords(const Graph& before, const std::vector<LayerRun>& runs, const Graph& after);

  const std::vector<LayerRun>& runs() const { return runs_; }

  struct Word {
    uint32_t run = LayerPlace::kNone;
    uint32_t layer = 0;
    // The same for the same node of every layer. A bucket stands in the layer of its first member, and is the same where all
    // members are, so many layers on.
    uint64_t slot = 0;
  };
  // By node of the schedule.
  const Word& of(NodeId id) const { return words_[id.index()]; }
  // The same node so many layers later, or earlier; none if there is none.
  NodeId Shifted(NodeId id, int64_t layers) const;
  bool is_product(NodeId id) const { return is_product_[id.index()]; }
  // The first matrix product or attention of a layer, which stands for its begin; none if it has none.
  NodeId head(uint32_t run, uint32_t layer) const { return heads_[run][layer]; }

 private:
  static uint64_t Key(const Word& word) {
    return MixHash(MixHash(word.slot, word.run), word.layer);
  }
  void AddWords(const Graph& before, const Graph& after);

  const std::vector<LayerRun>& runs_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, NodeId> nodes_;
  std::vector<bool> is_product_;
  std::vector<std::vector<NodeId>> heads_;
};

}  // namespace heddle
