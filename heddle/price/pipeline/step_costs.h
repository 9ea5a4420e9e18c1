// Costs of pipeline stages, from the simulated step of one rank without a pipeline.
#pragma once

#include <vector>

#include "heddle/core/analysis/layers.h"
#include "heddle/price/cost/cost_model.h"
#include "heddle/price/pipeline/times.h"
#include "heddle/price/sim/simulate.h"

namespace heddle::price {

// One position of a model (Layers), for one micro-batch.
struct PositionCost {
  StageCost cost;
  // Bytes between this position and the next one, in the direction that has more.
  Bytes crossing;
};

struct StepCosts {
  Layers layers;
  // Embedding, layers, output and loss.
  std::vector<PositionCost> positions;
  // Forward work that every stage repeats, such as tables of positions.
  Nanos every_stage;

  // Only as many stages can be separated.
  int64_t most_stages() const { return static_cast<int64_t>(positions.size()); }
};

// The graph's batch is one micro-batch. Time includes exposed collectives, except work that runs
// once per step: gathers of weights, reductions of gradients, the optimizer. Fails if the graph is
// not local or has no layers.
Result<StepCosts> FindStepCosts(const Module& module, const Graph& graph, const CostModel& model,
                                const SimulateOptions& options = {});

// The first position of each stage. No other cut has a shorter longest stage; among those, none has
// a smaller sum of squares. There are at most as many stages as positions.
std::vector<int64_t> BalanceStages(const StepCosts& step, int64_t stages);
std::vector<int64_t> BalanceStages(const std::vector<PositionCost>& positions, int64_t stages);

// Stage 0 returns no gradient, so its whole backward counts as weight gradient. A hop is the
// largest transfer between two stages. A stage's activations are the bytes that its backward reads.
PipelineCosts StageCostsOf(const StepCosts& step, const std::vector<int64_t>& first_positions,
                           const Cluster& cluster);
// The same, where activations are the sums of the positions'. `between_nodes`: whether each
// transfer uses the network.
PipelineCosts SumOfStages(const std::vector<PositionCost>& positions, Nanos every_stage,
                          const std::vector<int64_t>& first_positions, const Cluster& cluster,
                          bool between_nodes);

}  // namespace heddle::price
