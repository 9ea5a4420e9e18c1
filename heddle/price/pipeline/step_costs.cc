#include "heddle/price/pipeline/step_costs.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace heddle::price {
namespace {

// Limits the time to divide layers among stages.
constexpr int64_t kMostLayers = 1000;

Nanos Total(const StageCost& cost) {
  return cost.forward + cost.input_gradient + cost.weight_gradient;
}

// The least length of the longest of `stages` stages. `before` has the sums of the positions'
// costs.
int64_t ShortestLongest(const std::vector<int64_t>& before, int64_t stages) {
  auto fits = [&](int64_t longest) {
    int64_t used = 1;
    int64_t begin = 0;
    for (size_t i = 1; i < before.size(); ++i) {
      if (before[i] - before[i - 1] > longest) return false;
      if (before[i] - begin <= longest) continue;
      begin = before[i - 1];
      ++used;
    }
    // Fewer stages can be divided further.
    return used <= stages;
  };
  int64_t low = 0;
  int64_t high = before.back();
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace

Result<StepCosts> FindStepCosts(const Module& module, const Graph& graph, const CostModel& model,
                                const SimulateOptions& options) {
  HEDDLE_TRY(Simulation simulation, Simulate(module, graph, model, options));
  Layers layers(graph);
  if (layers.count() == 0)
    return Error(Diag::kSchedule,
                 "@{} has no layers to divide among stages; its nodes need scopes such as "
                 "`@layers.3`",
                 graph.name());
  if (layers.count() > kMostLayers)
    return Error(Diag::kSchedule, "@{} has {} layers, more than {}", graph.name(), layers.count(),
                 kMostLayers);
  StepCosts out{layers, {}, {}};
  out.positions.resize(static_cast<size_t>(layers.count() + 2));
  for (NodeId id : graph.nodes()) {
    if (layers.part(id) == StepPart::kOnce) continue;
    const NodeTimes& times = simulation.timeline.nodes[id.index()];
    Nanos time = times.left - times.reached;
    if (layers.position(id) == Layers::kAnywhere) {
      out.every_stage += time;
      continue;
    }
    StageCost& cost = out.positions[static_cast<size_t>(layers.position(id))].cost;
    switch (layers.part(id)) {
      case StepPart::kForward: cost.forward += time; break;
      case StepPart::kInputGradient: cost.input_gradient += time; break;
      case StepPart::kWeightGradient: cost.weight_gradient += time; break;
      case StepPart::kOnce: break;
    }
  }
  for (size_t position = 0; position < out.positions.size(); ++position) {
    auto at = static_cast<int64_t>(position);
    Bytes back = position + 1 < out.positions.size() ? layers.backward_crossing(at + 1) : Bytes{};
    out.positions[position].crossing = std::max(layers.forward_crossing(at), back);
  }
  return out;
}

std::vector<int64_t> BalanceStages(const std::vector<PositionCost>& positions, int64_t stages) {
  size_t count = positions.size();
  HEDDLE_CHECK(stages >= 1 && static_cast<size_t>(stages) <= count, "more stages than positions");
  std::vector<int64_t> before(count + 1);
  for (size_t i = 0; i < count; ++i) before[i + 1] = before[i] + Total(positions[i].cost).value;
  int64_t longest = ShortestLongest(before, stages);
  constexpr double kImpossible = std::numeric_limits<double>::infinity();
  struct Cut {
    double squares = kImpossible;
    size_t first = 0;
  };
  // best[s][i]: the first i positions in s stages of at most `longest`.
  std::vector<std::vector<Cut>> best(static_cast<size_t>(stages) + 1, std::vector<Cut>(count + 1));
  best[0][0].squares = 0;
  for (size_t s = 1; s < best.size(); ++s)
    for (size_t i = s; i <= count; ++i)
      for (size_t first = i; first-- > s - 1 && before[i] - before[first] <= longest;) {
        auto length = static_cast<double>(before[i] - before[first]);
        double squares = best[s - 1][first].squares + length * length;
        if (squares < best[s][i].squares) best[s][i] = {squares, first};
      }
  std::vector<int64_t> firsts(static_cast<size_t>(stages));
  size_t end = count;
  for (size_t s = firsts.size(); s > 0; --s) {
    end = best[s][end].first;
    firsts[s - 1] = static_cast<int64_t>(end);
  }
  return firsts;
}

std::vector<int64_t> BalanceStages(const StepCosts& step, int64_t stages) {
  return BalanceStages(step.positions, stages);
}

PipelineCosts SumOfStages(const std::vector<PositionCost>& positions, Nanos every_stage,
                          const std::vector<int64_t>& first_positions, const Cluster& cluster,
                          bool between_nodes) {
  PipelineCosts out;
  Bytes largest;
  for (size_t stage = 0; stage < first_positions.size(); ++stage) {
    auto begin = static_cast<size_t>(first_positions[stage]);
    bool last = stage + 1 == first_positions.size();
    size_t end = last ? positions.size() : static_cast<size_t>(first_positions[stage + 1]);
    StageCost& sum = out.stages.emplace_back();
    sum.forward = every_stage;
    for (size_t position = begin; position < end; ++position) {
      const StageCost& cost = positions[position].cost;
      sum.forward += cost.forward;
      sum.input_gradient += cost.input_gradient;
      sum.weight_gradient += cost.weight_gradient;
      sum.activations += cost.activations;
    }
    if (!last) largest = std::max(largest, positions[end - 1].crossing);
  }
  StageCost& first = out.stages[0];
  first.weight_gradient += std::exchange(first.input_gradient, Nanos{});
  out.hop = TransferCost(cluster, largest, between_nodes).total();
  return out;
}

PipelineCosts StageCostsOf(const StepCosts& step, const std::vector<int64_t>& first_positions,
                           const Cluster& cluster) {
  PipelineCosts out = SumOfStages(step.positions, step.every_stage, first_positions, cluster,
                                  /*between_nodes=*/true);
  for (size_t stage = 0; stage < first_positions.size(); ++stage) {
    bool last = stage + 1 == first_positions.size();
    int64_t end = last ? step.most_stages() : first_positions[stage + 1];
    out.stages[stage].activations = step.layers.KeptBy(first_positions[stage], end);
  }
  return out;
}

}  // namespace heddle::price
