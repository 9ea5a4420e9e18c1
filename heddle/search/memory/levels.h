// Levels: ways to treat all blocks of a step alike, from the fastest to the smallest. A search mixes them block by block.
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
  // The first run, on the compute stream.
  std::vector<Nanos> once;
  // A second run: on the compute stream, and with the whole time of collectives, though a schedule
  // may hide it. 0 for forward nodes that only backward reads: recomputation moves their only run.
  std::vector<Nanos> compute;
  std::vector<Nanos> all;
};
Result<RunTimes> FindRunTimes(const Module& module, const price::CostModel& model);

// What can be done to a level besides recomputing.
class LevelVariants {
 public:
  // All outlive this.
  LevelVariants(const Graph& graph, const Weights& weights, const Blocks& blocks);

  // What forward gathered stays for backward; or is gathered again.
  Level WithWeights(const Level& level) const;
  Level GatheredAgain(const Level& level) const;
  // What it is marked to keep goes to the host: in each block the largest values, as many as the copy engine takes out in `share` of the
  // time that the block computes in forward. `times` has that, by node. The same level if that is none.
  Level Offloaded(const Level& level, const price::CostModel& model, std::span<const Nanos> times,
                  double share) const;

 private:
  Level WithMark(const Level& level, Keep mark, std::string_view name) const;

  const Graph& graph_;
  const Weights& weights_;
  const Blocks& blocks_;
  // Weights that forward gathered and something behind it reads.
  std::vector<ValueId> gathered_;
};

}  // namespace heddle::search
