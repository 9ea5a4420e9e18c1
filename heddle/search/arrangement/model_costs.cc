#include "heddle/search/arrangement/model_costs.h"

#include <algorithm>
#include <set>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/liveness.h"
#include "heddle/core/analysis/weights.h"

namespace heddle::search {
namespace {

Bytes Size(const Graph& graph, ValueId value) { return graph.types().bytes(graph.type(value)); }

// A pipeline keeps weights gathered, so forward's readers have all of them.
Bytes WeightsOf(const Graph& graph, const Layers& layers) {
  Weights weights(graph);
  Liveness liveness(graph);
  std::set<StorageId> seen;
  Bytes sum;
  for (NodeId id : graph.nodes()) {
    if (layers.part(id) != StepPart::kForward) continue;
    for (ValueId v : graph.operands(id)) {
      if (!v || !graph[v].producer || !weights.is_weight(v)) continue;
      StorageId storage = liveness.of(v);
      const Storage& one = liveness.storages()[storage];
      if (one.birth && seen.insert(storage).second) sum += one.bytes;
    }
  }
  return sum;
}

SharedCosts SharedOf(const Graph& graph, const Layers& layers, const price::GraphCosts& costs) {
  SharedCosts out;
  out.weights = WeightsOf(graph, layers);
  Bytes params;
  for (const Input& input : graph.inputs()) {
    const bool param = input.role == InputRole::kParam;
    if (param || input.role == InputRole::kOpt) out.state += Size(graph, input.value);
    if (param) params += Size(graph, input.value);
  }
  for (NodeId id : graph.nodes()) {
    if (graph[id].phase == Phase::kOptimizer) out.optimizer += costs.nodes[id].compute;
    if (!IsLaunch(graph, id) || !IsGradReduction(graph, id)) continue;
    for (ValueId v : graph.operands(id)) {
      if (v) out.gradients += Size(graph, v);
    }
  }
  // A single rank that has the batch reduces nothing.
  out.gradients = std::max(out.gradients, params);
  return out;
}

// The most memory of values that backward of a position creates.
Bytes WorkspaceOf(const Graph& graph, const Layers& layers, int64_t position) {
  Liveness liveness(graph);
  std::vector<Bytes> change(graph.node_count() + 1);
  for (const Storage& storage : liveness.storages()) {
    if (!storage.birth || layers.position(storage.birth) != position) continue;
    StepPart part = layers.part(storage.birth);
    if (part != StepPart::kInputGradient && part != StepPart::kWeightGradient) continue;
    change[storage.birth.index()] += storage.bytes;
    size_t end = storage.death ? storage.death.index() + 1 : graph.node_count();
    change[end] -= storage.bytes;
  }
  Bytes now;
  Bytes most;
  for (Bytes bytes : change) {
    now += bytes;
    most = std::max(most, now);
  }
  return most;
}

SharedCosts LayerOf(const SharedCosts& smaller, const SharedCosts& larger) {
  return {.optimizer = larger.optimizer - smaller.optimizer,
          .state = larger.state - smaller.state,
          .weights = larger.weights - smaller.weights,
          .gradients = larger.gradients - smaller.gradients};
}

// Half of the rest without layers: embedding and output have weights of one size.
template <typename T>
T EndOf(T all, T layer, int64_t layers) {
  return {std::max<int64_t>(0, (all - layer * layers).value) / 2};
}

}  // namespace

SharedCosts& SharedCosts::operator+=(const SharedCosts& other) {
  optimizer += other.optimizer;
  state += other.state;
  weights += other.weights;
  gradients += other.gradients;
  return *this;
}

Result<SmallModel> MeasureSmallModel(const Evaluation& step, const price::CostModel& model) {
  const Graph& graph = step.module.graphs[0];
  // Weights are gathered, and gradients reduced, once for all micro-batches. They slow down few.
  price::SimulateOptions options;
  options.slowdown = 0;
  HEDDLE_TRY(price::StepCosts costs, price::FindStepCosts(step.module, graph, model, options));
  HEDDLE_TRY(price::GraphCosts prices, model.Price(step.module, graph));
  const Layers layers = costs.layers;
  return SmallModel{.step = std::move(costs),
                    .shared = SharedOf(graph, layers, prices),
                    .kept = step.kept,
                    .workspace = WorkspaceOf(graph, layers, layers.count() - 1)};
}

ModelCosts ExtendCosts(const SmallModel& smaller, const SmallModel& larger, int64_t layers) {
  const int64_t small = larger.step.layers.count();
  const int64_t repeated = small - 1;
  const Bytes kept = larger.kept - smaller.kept;
  const SharedCosts layer = LayerOf(smaller.shared, larger.shared);
  const SharedCosts& all = larger.shared;
  const SharedCosts end{.optimizer = EndOf(all.optimizer, layer.optimizer, small),
                        .state = EndOf(all.state, layer.state, small),
                        .weights = EndOf(all.weights, layer.weights, small),
                        .gradients = EndOf(all.gradients, layer.gradients, small)};
  ModelCosts out{.positions = {},
                 .every_stage = larger.step.every_stage,
                 .shared = {},
                 .output = {std::max<int64_t>(0, (larger.kept - kept * small).value)},
                 .recomputed = {},
                 .workspace = larger.workspace};
  for (int64_t position = 0; position < layers + 2; ++position) {
    const bool is_layer = position > 0 && position <= layers;
    const int64_t from_end = layers + 1 - position;
    const int64_t like = position < repeated                ? position
                         : from_end <= small + 1 - repeated ? small + 1 - from_end
                                                            : repeated;
    out.positions.push_back(larger.step.positions[static_cast<size_t>(like)]);
    out.positions.back().cost.activations = is_layer ? kept : Bytes{};
    out.shared.push_back(is_layer ? layer : end);
  }
  return out;
}

}  // namespace heddle::search
