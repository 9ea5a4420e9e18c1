#include "heddle/compile/passes/pipeline/staged_step.h"

#include <algorithm>
#include <set>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/ir/storage.h"

namespace heddle::compile {

StagedStep::StagedStep(const Module& module, const Graph& step, const StagePlaces& places)
    : module_(module),
      graph_(step),
      places_(places),
      part_(step.node_count()),
      stage_(step.node_count(), kAnywhere),
      late_(step.node_count()),
      gathers_(step.node_count()),
      uses_(step),
      home_(step.value_count(), kAnywhere),
      shared_(step.value_count()),
      summed_(step.value_count()),
      forward_reads_(places.count()),
      backward_reads_(places.count()) {}

Result<StagedStep> StagedStep::Find(const Module& module, const Graph& step,
                                    const StagePlaces& places) {
  StagedStep staged(module, step, places);
  Weights weights(step);
  staged.FindStages();
  for (const Output& output : step.outputs()) {
    if (output.role == OutputRole::kGrad) staged.FollowGradient(output, weights);
  }
  staged.FindGathers(weights);
  staged.FindParams(weights);
  HEDDLE_RETURN_IF_ERROR(staged.FindReads());
  HEDDLE_RETURN_IF_ERROR(staged.FindHomes());
  staged.FindNeeds(*std::ranges::max_element(places.coordinates) + 1);
  return staged;
}

Failure StagedStep::Refuse(ValueId value, std::string_view why) const {
  return Error(Diag::kSchedule, "`%{}` {}", graph_.name(value), why);
}

bool StagedStep::splits(NodeId node) const {
  return once(node) && graph_[node].op == op::heddle_squared_norm;
}

void StagedStep::FindStages() {
  Layers layers(graph_);
  for (NodeId id : graph_.nodes()) {
    part_[id.index()] = layers.part(id);
    if (once(id) || layers.position(id) == Layers::kAnywhere) continue;
    auto after = std::ranges::upper_bound(places_.first_positions, layers.position(id));
    stage_[id.index()] = static_cast<int32_t>(after - places_.first_positions.begin()) - 1;
  }
}

bool StagedStep::ReducesOverBatch(NodeId node) const {
  if (!IsLaunch(graph_, node) || !IsGradReduction(graph_, node)) return false;
  return std::ranges::any_of(std::get<Axes>(*graph_.attrs(node).Find("over")), [&](AxisId axis) {
    return module_.mesh[axis].role != AxisRole::kTensor;
  });
}

// A gradient is summed in the type and place in which it is reduced over the batch: nodes before
// that reduction run per micro-batch.
void StagedStep::FollowGradient(const Output& output, const Weights& weights) {
  std::vector<NodeId> path;
  ValueId v = output.value;
  while (graph_[v].producer && weights.carries_gradient(graph_[v].producer)) {
    NodeId node = graph_[v].producer;
    if (graph_[node].operand_count != 1) break;
    path.push_back(node);
    size_t result = v.index() - graph_[node].first_result.index();
    if (NodeId launch = LaunchOf(graph_, node)) {
      path.push_back(launch);
      v = graph_.operands(launch)[result];
    } else {
      v = graph_.operands(node)[0];
    }
  }
  NodeId source = graph_[v].producer;
  if (!source || once(source)) return;
  for (; !path.empty() && !ReducesOverBatch(path.back()); path.pop_back()) {
    part_[path.back().index()] = StepPart::kWeightGradient;
    stage_[path.back().index()] = stage(source);
  }
  std::ranges::reverse(path);
  AddReduction(path, output.value);
}

// `path` brings a sum over micro-batches to a gradient. Values that others read, too, must be those
// of the whole step, so the first of them ends the reduction.
void StagedStep::AddReduction(std::span<const NodeId> path, ValueId grad) {
  GroupReduction reduction{path.empty() ? grad : graph_.operands(path[0])[0], grad, {}};
  if (!path.empty() && HasOtherReaders(reduction.sum)) return;
  for (NodeId node : path) {
    // A launch of several tensors is not divided.
    if (graph_.operands(node).size() > 1) return;
    reduction.nodes.push_back(node);
    reduction.grad = graph_[node].first_result;
    if (HasOtherReaders(reduction.grad)) break;
  }
  if (graph_.types().is_async(graph_.type(reduction.grad))) return;
  reductions_.push_back(std::move(reduction));
}

void StagedStep::FindGathers(const Weights& weights) {
  for (NodeId id : graph_.nodes()) {
    IdRange<ValueId> results = graph_.results(id);
    bool ready = !results.empty() &&
                 std::ranges::all_of(results, [&](ValueId v) { return weights.is_gathered(v); });
    gathers_[id.index()] = once(id) && (ready || MovesWeight(graph_, id));
  }
  auto exclude = [&](ValueId v) {
    if (v && graph_[v].producer) gathers_[graph_[v].producer.index()] = false;
  };
  for (const Output& output : graph_.outputs()) exclude(output.value);
  for (size_t i = graph_.node_count(); i-- > 0;) {
    NodeId id(i);
    if (!once(id) || gathers(id)) continue;
    for (ValueId v : graph_.operands(id)) exclude(v);
  }
}

void StagedStep::FindParams(const Weights& weights) {
  size_t count = 0;
  for (const Input& input : graph_.inputs()) {
    if (input.role == InputRole::kParam)
      count = std::max(count, static_cast<size_t>(input.index) + 1);
  }
  std::vector<int32_t> first(count, kAnywhere);
  for (NodeId id : graph_.nodes()) {
    if (once(id) || stage(id) == kAnywhere) continue;
    for (ValueId v : graph_.operands(id)) {
      if (!v || !weights.is_weight(v)) continue;
      int32_t& found = first[static_cast<size_t>(weights.param(v))];
      if (found == kAnywhere || stage(id) < found) found = stage(id);
    }
  }
  for (int32_t found : first) {
    // A parameter that no layer reads is the root's.
    param_home_.push_back(found == kAnywhere ? root()
                                             : places_.coordinates[static_cast<size_t>(found)]);
  }
}

Status StagedStep::FindReads() {
  for (NodeId id : graph_.nodes()) {
    Effect effect = graph_.op(id).effect();
    if (effect == Effect::kRandom || effect == Effect::kOpaque)
      return Error(Diag::kSchedule,
                   "{} has effect {}, which cannot be repeated per "
                   "micro-batch yet",
                   graph_.op(id).name(), Name(effect));
    if (once(id) || stage(id) == kAnywhere) continue;
    for (ValueId v : graph_.operands(id)) {
      if (v) HEDDLE_RETURN_IF_ERROR(CheckRead(id, v));
    }
  }
  return Done{};
}

Status StagedStep::CheckRead(NodeId node, ValueId value) {
  NodeId producer = graph_[value].producer;
  if (!producer || once(producer) || stage(producer) == kAnywhere) return Done{};
  int32_t from = stage(producer);
  int32_t to = stage(node);
  if (from == to) return Done{};
  bool forward = part(node) == StepPart::kForward;
  bool made_forward = part(producer) == StepPart::kForward;
  if (forward && from > to) return Refuse(value, "moves forward to an earlier stage");
  if (!made_forward && from < to) return Refuse(value, "moves backward to a later stage");
  if (part(producer) == StepPart::kWeightGradient)
    return Refuse(value, "is part of a weight's gradient, but another stage reads it");
  TypeId type = graph_.type(value);
  if (graph_.types().is_async(type) || std::ranges::any_of(graph_.types().dims(type), IsSymbol))
    return Refuse(value, "moves between stages, but its size is not fixed");
  // A forward value for a later stage arrives with its forward, whatever part reads it.
  bool early = forward || (made_forward && from < to);
  std::vector<ValueId>& reads = (early ? forward_reads_ : backward_reads_)[static_cast<size_t>(to)];
  if (std::ranges::find(reads, value) == reads.end()) reads.push_back(value);
  return Done{};
}

Status StagedStep::FindHomes() {
  for (const Input& input : graph_.inputs()) {
    bool of_param = input.role == InputRole::kParam || input.role == InputRole::kOpt;
    if (of_param) home_[input.value.index()] = param_home_[static_cast<size_t>(input.index)];
  }
  for (NodeId id : graph_.nodes()) {
    if (once(id)) {
      HEDDLE_RETURN_IF_ERROR(FindHome(id));
      continue;
    }
    for (ValueId v : graph_.results(id)) home_[v.index()] = CoordinateOf(id);
    for (ValueId v : graph_.operands(id)) {
      if (v && graph_[v].producer && late(graph_[v].producer))
        return Refuse(v, "is computed after all micro-batches, but a micro-batch reads it");
    }
  }
  for (const Output& output : graph_.outputs()) {
    NodeId producer = graph_[output.value].producer;
    if (!producer || once(producer)) continue;
    if (stage(producer) == kAnywhere)
      return Refuse(output.value, "is an output that belongs to no stage");
    summed_[output.value.index()] = true;
  }
  return Done{};
}

Status StagedStep::FindHome(NodeId node) {
  std::set<int32_t> homes;
  bool reads_shared = false;
  bool late = graph_[node].phase == Phase::kOptimizer;
  for (ValueId v : graph_.operands(node)) {
    if (!v) continue;
    NodeId producer = graph_[v].producer;
    if (producer && !once(producer)) {
      if (stage(producer) == kAnywhere)
        return Refuse(v, "is summed over micro-batches, but belongs to no stage");
      summed_[v.index()] = true;
      late = true;
    }
    late |= producer && late_[producer.index()];
    if (shared_[v.index()])
      reads_shared = true;
    else if (home(v) != kAnywhere)
      homes.insert(home(v));
  }
  late_[node.index()] = late;
  int32_t home = kAnywhere;
  bool shared = false;
  if (splits(node) || (homes.empty() && reads_shared)) {
    home = root();
    shared = true;
  } else if (homes.size() == 1) {
    home = *homes.begin();
  } else if (homes.size() > 1) {
    return Refuse(graph_[node].first_result, "reads values of several coordinates");
  }
  for (ValueId v : graph_.results(node)) {
    home_[v.index()] = home;
    shared_[v.index()] = shared;
  }
  return Done{};
}

bool StagedStep::returns(int32_t coordinate, const Output& output) const {
  int32_t at = kAnywhere;
  if (output.role == OutputRole::kGrad) at = param_home_[static_cast<size_t>(output.index)];
  if (output.role == OutputRole::kUpdate) {
    at = home(output.target);
    if (at == kAnywhere) at = home(output.value);
  }
  // Every rank reports the loss and the metrics.
  return at == kAnywhere || at == coordinate;
}

bool StagedStep::IsOwn(NodeId node) const {
  if (!node || !once(node) || late(node)) return false;
  return gathers(node) || ViewedOperand(graph_, node);
}

// Another coordinate sends what it computes. A view is made again on each coordinate, because a
// transfer would change its strides, which kernels depend on. Shards are sent before they are
// gathered, because they are smaller.
void StagedStep::Need(int32_t coordinate, ValueId value) {
  bool own = home(value) == kAnywhere || IsOwn(graph_[value].producer);
  int32_t at = own ? coordinate : home(value);
  needs_[static_cast<size_t>(at)][value.index()] = true;
}

void StagedStep::FindNeeds(int32_t coordinates) {
  runs_.assign(static_cast<size_t>(coordinates), std::vector<bool>(graph_.node_count()));
  needs_.assign(static_cast<size_t>(coordinates), std::vector<bool>(graph_.value_count()));
  for (int32_t c = 0; c < coordinates; ++c) {
    for (const Output& output : graph_.outputs()) {
      if (!returns(c, output)) continue;
      Need(c, output.value);
      if (output.target) needs_[static_cast<size_t>(c)][output.target.index()] = true;
    }
  }
  for (size_t i = graph_.node_count(); i-- > 0;) {
    NodeId id(i);
    for (int32_t c = 0; c < coordinates; ++c) {
      bool runs = CoordinateOf(id) == c && !once(id);
      for (ValueId v : graph_.results(id)) runs |= needs(c, v);
      if (!runs) continue;
      runs_[static_cast<size_t>(c)][i] = true;
      for (ValueId v : graph_.operands(id)) {
        if (v) Need(c, v);
      }
    }
  }
}

}  // namespace heddle::compile
