#include "heddle/compile/passes/pipeline/unroll.h"

#include <algorithm>
#include <map>
#include <set>

#include "heddle/compile/passes/pipeline/coordinates.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ops/ops.h"
#include "heddle/core/pipeline/run_in_order.h"

namespace heddle::compile {
namespace {

constexpr int64_t kOnce = Coordinates::kOnce;

class Unroller {
 public:
  Unroller(const Module& module, AxisId axis, const StagedStep& staged,
           const PipelineSchedule& schedule)
      : graph_(module.graphs[0]),
        staged_(staged),
        schedule_(schedule),
        out_(module.mesh, axis, graph_, schedule.micro_batches),
        readers_(graph_.value_count()),
        added_(graph_.value_count()),
        begins_(static_cast<size_t>(out_.count())) {
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
    for (size_t c = 0; c < graphs.size(); ++c) LaunchReceivesEarly(begins_[c], graphs[c]);
    return graphs;
  }

 private:
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

  void RunOnce(NodeId node) {
    if (staged_.splits(node)) {
      RunSplit(node);
      return;
    }
    for (int32_t c = 0; c < out_.count(); ++c) {
      if (!staged_.runs(c, node)) continue;
      for (ValueId v : graph_.operands(node)) {
        if (v) Fetch(c, v, staged_.late(node) ? Phase::kOptimizer : Phase::kForward);
      }
      out_.CopyNode(c, kOnce, node);
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
          if (early) Fetch(coordinates[stage], v, Phase::kForward);
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
    begins_[static_cast<size_t>(at)].push_back(NodeId(out_.graph(at).node_count()));
  }

  // A transfer begins when both ends are launched. Moves each receive to the beginning of the
  // previous action, which then overlaps the transfer. `begins` has the first node of each action,
  // and that after all of them.
  static void LaunchReceivesEarly(const std::vector<NodeId>& begins, Graph& graph) {
    // By action: the receives that it launches. The first nodes are before all actions.
    std::vector<std::vector<NodeId>> launched(begins.size());
    auto action_of = [&](NodeId id) {
      return static_cast<size_t>(std::ranges::upper_bound(begins, id) - begins.begin());
    };
    auto moves = [&](NodeId id) {
      return graph[id].op == op::comm_recv && action_of(id) > 0 && id < begins.back();
    };
    for (NodeId id : graph.nodes()) {
      if (moves(id)) launched[std::max<size_t>(action_of(id), 2) - 2].push_back(id);
    }
    std::vector<NodeId> order;
    size_t next = 0;
    for (NodeId id : graph.nodes()) {
      for (; next < begins.size() && begins[next] <= id; ++next)
        order.insert(order.end(), launched[next].begin(), launched[next].end());
      if (!moves(id)) order.push_back(id);
    }
    Rewriter rewriter(graph);
    rewriter.Reorder(order);
    rewriter.Commit();
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
    if (forward || both || action.work == PipelineWork::kInputGradient)
      Receive(at, b, forward ? staged_.forward_reads(stage) : staged_.backward_reads(stage), phase);
    for (NodeId node : stages_[stage]) {
      if (is_part(node)) RunNode(at, b, node);
    }
    for (NodeId node : stages_[stage]) {
      if (!is_part(node)) continue;
      for (ValueId v : graph_.results(node)) {
        for (int32_t reader : readers_[v.index()])
          out_.Send(at, reader, v, b, out_.copy(at, b, v), phase);
        if (staged_.summed(v)) Add(at, v, node);
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

  // Runs nodes that belong to no stage first, where this one needs them.
  void RunNode(int32_t at, int64_t b, NodeId node) {
    for (ValueId v : graph_.operands(node)) {
      if (!v || out_.copy(at, b, v)) continue;
      NodeId producer = graph_[v].producer;
      HEDDLE_CHECK(
          producer && !staged_.once(producer) && staged_.stage(producer) == StagedStep::kAnywhere,
          fmt::format("`%{}` is read before it is computed", graph_.name(v)));
      RunNode(at, b, producer);
    }
    out_.CopyNode(at, b, node);
  }

  // Adds micro-batches in ascending order, as soon as all earlier ones are there.
  void Add(int32_t at, ValueId value, NodeId producer) {
    int64_t& added = added_[value.index()];
    for (; added < schedule_.micro_batches; ++added) {
      ValueId next = out_.copy(at, added, value);
      if (!next || next == out_.copy(at, kOnce, value)) return;
      ValueId sum = out_.copy(at, kOnce, value);
      ValueId all = added == 0 ? next
                               : out_.Append(at, op::add_Tensor, {sum, next}, {},
                                             graph_.types()[graph_.type(value)],
                                             fmt::format("{}.sum", graph_.name(value)), producer,
                                             graph_[producer].phase);
      out_.SetCopy(at, kOnce, value, all);
    }
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
  Coordinates out_;
  // The nodes of each stage, in the order of the step.
  std::vector<std::vector<NodeId>> stages_;
  // By value: the other coordinates that read it, and how many micro-batches its sum has.
  std::vector<std::set<int32_t>> readers_;
  std::vector<int64_t> added_;
  // By coordinate: the first node of each action, and that after all of them.
  std::vector<std::vector<NodeId>> begins_;
  bool trains_ = false;
};

}  // namespace

Result<std::vector<Graph>> Unroll(const Module& module, AxisId axis, const StagedStep& staged,
                                  const PipelineSchedule& schedule) {
  return Unroller(module, axis, staged, schedule).Run();
}

}  // namespace heddle::compile
