// Levels: ways to treat all blocks of a step equally, from the fastest to the smallest. A search
// mixes them block by block.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/analysis/blocks.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/search/memory/trial.h"

namespace heddle::search {

struct Level {
  std::string name;
  Marks marks;
};

// Run times by node.
struct RunTimes {
  // Time of the first run on the compute stream.
  std::vector<Nanos> once;
  // Time of a second run: on the compute stream, and with the whole time of collectives, though a
  // schedule may hide it. 0 for forward nodes that only backward reads: recomputation moves their
  // only run.
  std::vector<Nanos> compute;
  std::vector<Nanos> all;
};
Result<RunTimes> FindRunTimes(const Module& module, const price::CostModel& model);

// Variants of a level, in addition to recomputing.
class LevelVariants {
 public:
  // All arguments must outlive this object.
  LevelVariants(const Graph& graph, const Weights& weights, const Blocks& blocks);

  // Keeps gathered weights for backward, or gathers them again.
  Level WithWeights(const Level& level) const;
  Level GatheredAgain(const Level& level) const;
  // Moves kept values to the host: in each block the largest ones, as many as the copy engine
  // transfers in `share` of the block's forward time. `times` contains the times by node. Returns
  // the same level if none fits.
  Level Offloaded(const Level& level, const price::CostModel& model, std::span<const Nanos> times,
                  double share) const;

 private:
  Level WithMark(const Level& level, Keep mark, std::string_view name) const;

  const Graph& graph_;
  const Weights& weights_;
  const Blocks& blocks_;
  // Weights that forward gathered and backward reads.
  std::vector<ValueId> gathered_;
};

}  // namespace heddle::search
