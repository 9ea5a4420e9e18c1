#include "heddle/compile/passes/pipeline/unroll.h"

#include <algorithm>
#include <map>
#include <set>

#include "heddle/compile/passes/pipeline/coordinates.h"
#include "heddle/compile/passes/pipeline/finish_coordinate.h"
#include "heddle/core/ops/ops.h"
#include "heddle/core/pipeline/run_in_order.h"

namespace heddle::compile {
namespace {

constexpr int64_t kOnce = Coordinates::kOnce;

class Unroller {
 public:
  Unroller(const Module& module, AxisId axis, const StagedStep& staged,
           const PipelineSchedule& schedule, const UnrollGroups& groups)
      : graph_(module.graphs[0]),
        staged_(staged),
        schedule_(schedule),
        groups_(groups),
        out_(module.mesh, axis, graph_, schedule.micro_batches),
        readers_(graph_.value_count()),
        sums_(graph_.value_count()),
        gathered_values_(static_cast<size_t>(out_.count())),
        parts_(static_cast<size_t>(out_.count())) {
    FindGroupNodes();
    stages_.resize(static_cast<size_t>(schedule.stages));
    for (NodeId id : graph_.nodes()) {
      if (!staged.once(id) && staged.stage(id) != StagedStep::kAnywhere)
        stages_[static_cast<size_t>(staged.stage(id))].push_back(id);
    }
    std::vector<int32_t> coordinates = RanksOfStages(schedule);
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      for (const std::vector<ValueId>* reads :
           {&staged.forward_reads(stage), &staged.backward_reads(stage)}) {
        for (ValueId v : *reads) {
          if (coordinates[stage] != staged.home(v)) readers_[v.index()].insert(coordinates[stage]);
        }
      }
    }
  }

  std::vector<Graph> Run() {
    AddInputs();
    for (NodeId id : graph_.nodes()) {
      if (staged_.once(id) && !staged_.late(id)) RunOnce(id);
    }
    FetchParams();
    RunInOrder(schedule_, [&](size_t rank, size_t at) {
      const std::vector<PipelineAction>& actions = schedule_.ranks[rank];
      for (size_t i = at; i < at + GroupSize(actions[at]); ++i)
        Act(static_cast<int32_t>(rank), actions[i]);
    });
    out_.WaitForSends(trains_ ? Phase::kBackward : Phase::kForward);
    for (int32_t c = 0; c < out_.count(); ++c) BeginAction(c);
    for (NodeId id : graph_.nodes()) {
      if (staged_.once(id) && staged_.late(id)) RunOnce(id);
    }
    AddOutputs();
    std::vector<Graph> graphs = out_.TakeGraphs();
    for (size_t c = 0; c < graphs.size(); ++c) FinishCoordinate(parts_[c], graphs[c]);
    return graphs;
  }

 private:
  // The sum of a value over micro-batches.
  struct Sum {
    int64_t added = 0;
    // The sum so far of the step, or of a group.
    ValueId group;
    // If groups are reduced: how, and the sum of the reduced gradients so far.
    const GroupReduction* reduction = nullptr;
    ValueId all;
  };

  void FindGroupNodes() {
    runs_per_group_.resize(graph_.node_count());
    if (groups_.gather > 0) {
      for (NodeId id : graph_.nodes()) {
        if (!staged_.gathers(id)) continue;
        runs_per_group_[id.index()] = true;
        for (int32_t c = 0; c < out_.count(); ++c) {
          if (!staged_.runs(c, id)) continue;
          auto& values = gathered_values_[static_cast<size_t>(c)];
          for (ValueId v : graph_.results(id)) values.push_back(v);
        }
      }
    }
    if (groups_.reduce == 0 || groups_.reduce >= schedule_.micro_batches) return;
    for (const GroupReduction& reduction : staged_.reductions()) {
      sums_[reduction.sum.index()].reduction = &reduction;
      for (NodeId id : reduction.nodes) runs_per_group_[id.index()] = true;
    }
  }

  void AddInputs() {
    for (const Input& input : graph_.inputs()) {
      for (int32_t c = 0; c < out_.count(); ++c) {
        if (!staged_.needs(c, input.value)) continue;
        bool batch = input.role == InputRole::kBatch;
        for (int64_t b = batch ? 0 : kOnce; b < (batch ? schedule_.micro_batches : 0); ++b)
          out_.AddInput(c, b, input);
      }
    }
  }

  bool RunsPerGroup(NodeId node) const { return node && runs_per_group_[node.index()]; }

  void RunOnce(NodeId node) {
    if (staged_.splits(node)) {
      RunSplit(node);
      return;
    }
    if (RunsPerGroup(node) && staged_.late(node)) return;
    for (int32_t c = 0; c < out_.count(); ++c) {
      if (!staged_.runs(c, node)) continue;
      for (ValueId v : graph_.operands(node)) {
        if (v && !RunsPerGroup(graph_[v].producer))
          Fetch(c, v, staged_.late(node) ? Phase::kOptimizer : Phase::kForward);
      }
      if (!RunsPerGroup(node)) out_.CopyNode(c, kOnce, node);
    }
  }

  // Receives the parameters of other coordinates that a stage reads.
  void FetchParams() {
    std::vector<int32_t> coordinates = RanksOfStages(schedule_);
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      for (NodeId node : stages_[stage]) {
        for (ValueId v : graph_.operands(node)) {
          if (!v || staged_.home(v) == StagedStep::kAnywhere) continue;
          NodeId producer = graph_[v].producer;
          bool early = !producer || (staged_.once(producer) && !staged_.late(producer));
          if (early && !RunsPerGroup(producer)) Fetch(coordinates[stage], v, Phase::kForward);
        }
      }
    }
  }

  // Receives a value of the step that another coordinate has computed.
  void Fetch(int32_t at, ValueId value, Phase phase) {
    if (out_.copy(at, kOnce, value)) return;
    int32_t home = staged_.home(value);
    HEDDLE_CHECK(home != StagedStep::kAnywhere && home != at,
                 fmt::format("`%{}` is read before it is computed", graph_.name(value)));
    out_.Send(home, at, value, kOnce, out_.copy(home, kOnce, value), phase);
    out_.SetCopy(at, kOnce, value, out_.Receive(at, home, value, kOnce, phase));
  }

  // Runs the node on each coordinate with gradients, which leaves zeros for the others, and adds
  // the results on the root. A square is never -0, so adding zero keeps its bits.
  void RunSplit(NodeId node) {
    int32_t root = staged_.root();
    if (!staged_.runs(root, node)) return;
    ValueId result = graph_[node].first_result;
    const AttrValue* given = graph_.attrs(node).Find("places");
    std::map<int32_t, std::pair<std::vector<ValueId>, std::vector<int64_t>>> parts;
    for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
      ValueId operand = graph_.operands(node)[i];
      int32_t home = staged_.home(operand) == StagedStep::kAnywhere ? root : staged_.home(operand);
      auto& [operands, places] = parts[home];
      operands.push_back(out_.copy(home, kOnce, operand));
      places.push_back(given != nullptr ? std::get<std::vector<int64_t>>(*given)[i]
                                        : static_cast<int64_t>(i));
    }
    Type type = graph_.types()[graph_.type(result)];
    ValueId sum;
    for (const auto& [home, part] : parts) {
      Attrs attrs;
      attrs.list_sizes = {static_cast<uint32_t>(part.first.size())};
      attrs.Set("places", part.second);
      attrs.Set("count", type.dims[0]);
      ValueId squares = out_.Append(home, graph_[node].op, part.first, attrs, type,
                                    graph_.name(result), node, Phase::kOptimizer);
      if (home != root) {
        out_.Send(home, root, result, -2 - home, squares, Phase::kOptimizer);
        squares = out_.Receive(root, home, result, -2 - home, Phase::kOptimizer);
      }
      sum = sum ? out_.Append(root, op::add_Tensor, {sum, squares}, {}, type, graph_.name(result),
                              node, Phase::kOptimizer)
                : squares;
    }
    out_.SetCopy(root, kOnce, result, sum);
  }

  void BeginAction(int32_t at) {
    parts_[static_cast<size_t>(at)].begins.push_back(NodeId(out_.graph(at).node_count()));
  }

  void Act(int32_t at, const PipelineAction& action) {
    auto stage = static_cast<size_t>(action.stage);
    bool forward = action.work == PipelineWork::kForward;
    // The first stage returns no gradient, so all of its backward is W.
    if (stage == 0 && action.work == PipelineWork::kInputGradient) return;
    bool both = action.work == PipelineWork::kBackward ||
                (stage == 0 && action.work == PipelineWork::kWeightGradient);
    auto is_part = [&](NodeId node) {
      StepPart part = staged_.part(node);
      if (forward) return part == StepPart::kForward;
      bool input = part == StepPart::kInputGradient;
      bool weight = part == StepPart::kWeightGradient;
      if (both) return input || weight;
      return action.work == PipelineWork::kInputGradient ? input : weight;
    };
    Phase phase = forward ? Phase::kForward : Phase::kBackward;
    int64_t b = action.micro_batch;
    BeginAction(at);
    BeginGroup(at, action);
    if (forward || both || action.work == PipelineWork::kInputGradient)
      Receive(at, b, forward ? staged_.forward_reads(stage) : staged_.backward_reads(stage), phase);
    for (NodeId node : stages_[stage]) {
      if (!is_part(node)) continue;
      RunNode(at, b, node);
      // Adding a gradient immediately frees its memory.
      for (ValueId v : graph_.results(node)) {
        if (staged_.summed(v)) Add(at, v, node);
      }
    }
    for (NodeId node : stages_[stage]) {
      if (!is_part(node)) continue;
      for (ValueId v : graph_.results(node)) {
        for (int32_t reader : readers_[v.index()])
          out_.Send(at, reader, v, b, out_.copy(at, b, v), phase);
      }
    }
    trains_ |= !forward && !stages_[stage].empty();
  }

  void Receive(int32_t at, int64_t b, const std::vector<ValueId>& values, Phase phase) {
    for (ValueId v : values) {
      if (!out_.copy(at, b, v))
        out_.SetCopy(at, b, v, out_.Receive(at, staged_.home(v), v, b, phase));
    }
  }

  // A gathered value of a group of micro-batches: its stage, the group, whether it is for backward,
  // and the value. If the parameter belongs to this coordinate, backward reads the value of
  // forward: `reshard-after-forward` decides whether to gather it again.
  using GroupKey = std::tuple<int32_t, int64_t, bool, ValueId>;
  GroupKey KeyOf(int32_t at, const PipelineAction& action, ValueId value) const {
    bool backward = action.work != PipelineWork::kForward && staged_.home(value) != at;
    return {action.stage, action.micro_batch / groups_.gather, backward, value};
  }

  // Makes the gathered values of the action's group those of its micro-batch.
  void BeginGroup(int32_t at, const PipelineAction& action) {
    action_ = action;
    for (ValueId v : gathered_values_[static_cast<size_t>(at)]) {
      auto found = gathered_.find(KeyOf(at, action, v));
      out_.SetCopy(at, action.micro_batch, v, found == gathered_.end() ? ValueId() : found->second);
    }
  }

  // Copies a node of a group of micro-batches.
  void CopyGroupNode(int32_t at, int64_t b, NodeId node, const std::string& group, Phase phase) {
    NodeId copy(out_.graph(at).node_count());
    out_.CopyNode(at, b, node);
    parts_[static_cast<size_t>(at)].group_nodes.push_back({copy, group, phase});
  }

  // Runs nodes first that belong to no stage, or gather weights of a group, where this one needs
  // them.
  void RunNode(int32_t at, int64_t b, NodeId node) {
    for (ValueId v : graph_.operands(node)) {
      if (!v || out_.copy(at, b, v)) continue;
      NodeId producer = graph_[v].producer;
      bool anywhere =
          producer && !staged_.once(producer) && staged_.stage(producer) == StagedStep::kAnywhere;
      HEDDLE_CHECK(anywhere || RunsPerGroup(producer),
                   fmt::format("`%{}` is read before it is computed", graph_.name(v)));
      RunNode(at, b, producer);
    }
    if (!RunsPerGroup(node)) {
      out_.CopyNode(at, b, node);
      return;
    }
    GroupKey key = KeyOf(at, action_, graph_[node].first_result);
    Phase phase = std::get<bool>(key) ? Phase::kBackward : graph_[node].phase;
    CopyGroupNode(at, b, node, fmt::format("{}.{}", action_.stage, std::get<1>(key)), phase);
    for (ValueId v : graph_.results(node)) gathered_[KeyOf(at, action_, v)] = out_.copy(at, b, v);
  }

  ValueId AddTwo(int32_t at, ValueId a, ValueId b, ValueId value, NodeId producer) {
    return out_.Append(at, op::add_Tensor, {a, b}, {}, graph_.types()[graph_.type(value)],
                       fmt::format("{}.sum", graph_.name(value)), producer, graph_[producer].phase);
  }

  // Adds micro-batches in ascending order, as soon as all earlier ones are there.
  void Add(int32_t at, ValueId value, NodeId producer) {
    Sum& sum = sums_[value.index()];
    const int64_t every = sum.reduction != nullptr ? groups_.reduce : schedule_.micro_batches;
    while (sum.added < schedule_.micro_batches) {
      ValueId next = out_.copy(at, sum.added, value);
      if (!next) return;
      sum.group = sum.group ? AddTwo(at, sum.group, next, value, producer) : next;
      ++sum.added;
      bool done = sum.added == schedule_.micro_batches;
      if (sum.added % every != 0 && !done) continue;
      if (sum.reduction != nullptr) Reduce(at, *sum.reduction, producer, sum);
      if (done) {
        ValueId result = sum.reduction != nullptr ? sum.reduction->grad : value;
        out_.SetCopy(at, kOnce, result, sum.reduction != nullptr ? sum.all : sum.group);
      }
      sum.group = ValueId();
    }
  }

  // Reduces the gradients of a group, and adds them to those of earlier groups.
  void Reduce(int32_t at, const GroupReduction& reduction, NodeId producer, Sum& sum) {
    const int64_t group = (sum.added - 1) / groups_.reduce;
    out_.SetCopy(at, kOnce, reduction.sum, sum.group);
    for (NodeId node : reduction.nodes)
      CopyGroupNode(at, kOnce, node, fmt::format("{}", group), graph_[node].phase);
    ValueId reduced = out_.copy(at, kOnce, reduction.grad);
    sum.all = sum.all ? AddTwo(at, sum.all, reduced, reduction.grad, producer) : reduced;
    // Later groups have other sums.
    out_.SetCopy(at, kOnce, reduction.sum, ValueId());
  }

  void AddOutputs() {
    for (const Output& output : graph_.outputs()) {
      for (int32_t c = 0; c < out_.count(); ++c) {
        if (staged_.returns(c, output)) Fetch(c, output.value, Phase::kOptimizer);
      }
    }
    out_.WaitForSends(trains_ ? Phase::kOptimizer : Phase::kForward);
    for (const Output& output : graph_.outputs()) {
      for (int32_t c = 0; c < out_.count(); ++c) {
        if (staged_.returns(c, output)) out_.CopyOutput(c, output);
      }
    }
  }

  const Graph& graph_;
  const StagedStep& staged_;
  const PipelineSchedule& schedule_;
  UnrollGroups groups_;
  Coordinates out_;
  // The nodes of each stage, in the order of the step.
  std::vector<std::vector<NodeId>> stages_;
  // By value: the other coordinates that read it.
  std::vector<std::set<int32_t>> readers_;
  // By value.
  std::vector<Sum> sums_;
  // By node of the step: whether it gathers or reduces for each group of micro-batches.
  std::vector<bool> runs_per_group_;
  // By coordinate: the values that it gathers per group.
  std::vector<std::vector<ValueId>> gathered_values_;
  std::map<GroupKey, ValueId> gathered_;
  // The current action.
  PipelineAction action_;
  // By coordinate.
  std::vector<CoordinateParts> parts_;
  bool trains_ = false;
};

}  // namespace

Result<std::vector<Graph>> Unroll(const Module& module, AxisId axis, const StagedStep& staged,
                                  const PipelineSchedule& schedule, const UnrollGroups& groups) {
  return Unroller(module, axis, staged, schedule, groups).Run();
}

}  // namespace heddle::compile
