#include "heddle/core/kernel/launches.h"

#include <map>

#include "heddle/core/kernel/index_add.h"
#include "heddle/core/kernel/loss.h"
#include "heddle/core/kernel/program.h"
#include "heddle/core/kernel/runs.h"
#include "heddle/core/kernel/weight_copies.h"
#include "heddle/core/ops/families.h"

namespace heddle {
namespace {

class LaunchLister {
 public:
  explicit LaunchLister(ArrangedGraph arranged)
      : arranged_(std::move(arranged)),
        graph_(arranged_.graph),
        uses_(graph_),
        liveness_(graph_),
        optimizer_(FindOptimizerRuns(graph_, uses_)),
        spared_(SparedCasts(graph_, uses_, optimizer_)) {
    for (size_t g = 0; g < arranged_.groups.size(); ++g)
      group_at_[arranged_.groups[g].nodes.front()] = g;
    for (const auto& [cast, param] : arranged_.copied)
      copies_[param] = BytesOf(graph_[cast].first_result);
  }

  LaunchList List() && {
    for (uint32_t next = 0; next < graph_.node_count();) next += Add(NodeId(next));
    return {std::move(arranged_.graph), std::move(launches_)};
  }

 private:
  Bytes BytesOf(ValueId value) const { return graph_.types().bytes(graph_.type(value)); }
  bool IsIdle(NodeId node) const {
    return spared_.contains(node) || arranged_.copied.contains(node);
  }
  // Returns the value that a kernel of the optimizer reads for an operand.
  ValueId Read(ValueId operand) const { return BeforeCast(graph_, spared_, operand); }

  // Adds a launch. Returns its number of nodes from `first` on.
  uint32_t Add(NodeId first) {
    if (std::optional<LossRun> run = FindLossRun(graph_, uses_, liveness_, first)) {
      AddLoss(first, *run);
      return static_cast<uint32_t>(run->count);
    }
    if (auto run = optimizer_.updates.find(first); run != optimizer_.updates.end()) {
      size_t count = run->second.count;
      KernelLaunch launch{"adamw", "lists", NodesFrom(first, count), {}};
      // Parameter and both averages are read and written; the gradient is only read, and the copy
      // only written.
      for (const AdamWRun::Update& update : run->second.updates) {
        launch.bytes += BytesOf(update.param) * 6 + BytesOf(Read(update.grad));
        auto copy = copies_.find(ParamOf(graph_, update.param).value_or(-1));
        if (copy != copies_.end()) launch.bytes += copy->second;
      }
      launches_.push_back(std::move(launch));
      return static_cast<uint32_t>(count);
    }
    if (optimizer_.norms.contains(first)) {
      KernelLaunch launch{"squared_norm", "lists", {first}, BytesOf(graph_[first].first_result)};
      for (ValueId operand : graph_.operands(first)) launch.bytes += BytesOf(Read(operand));
      launches_.push_back(std::move(launch));
      return 1;
    }
    if (auto group = group_at_.find(first); group != group_at_.end()) {
      AddGroup(group->second);
      return static_cast<uint32_t>(arranged_.groups[group->second].nodes.size());
    }
    if (std::optional<IndexAddRun> add = FindIndexAddRun(graph_, first)) {
      Bytes result = BytesOf(graph_[first].first_result);
      launches_.push_back(
          {"index_add",
           "rows",
           {first},
           result * (add->to_zero ? 1 : 2) + BytesOf(add->source) + BytesOf(add->index)});
      return 1;
    }
    AddNode(first);
    return 1;
  }

  static std::vector<NodeId> NodesFrom(NodeId first, size_t count) {
    std::vector<NodeId> nodes;
    for (size_t i = 0; i < count; ++i) nodes.emplace_back(first.index() + i);
    return nodes;
  }

  void AddLoss(NodeId first, const LossRun& run) {
    launches_.push_back({"loss", "rows", NodesFrom(first, run.count), BytesOf(run.logits) * 2});
  }

  void AddGroup(size_t g) {
    const KernelGroup& group = arranged_.groups[g];
    if (group.form == KernelGroup::Form::kCasts) {
      KernelLaunch launch{"casts", "lists", group.nodes, {}};
      std::erase_if(launch.nodes, [&](NodeId node) { return IsIdle(node); });
      for (NodeId node : launch.nodes)
        launch.bytes += BytesOf(graph_.operands(node)[0]) + BytesOf(graph_[node].first_result);
      if (!launch.nodes.empty()) launches_.push_back(std::move(launch));
      return;
    }
    GroupProgram written = WriteGroupProgram(graph_, uses_, arranged_.groups, g);
    KernelLaunch launch{
        written.program.name, written.program.name, group.nodes, {}, written.program.text};
    for (const std::vector<ValueId>* values : {&written.program.inputs, &written.program.outputs}) {
      for (ValueId value : *values) launch.bytes += BytesOf(value);
    }
    launches_.push_back(std::move(launch));
    if (!written.weight) return;
    const NormWeightGradient& weight = *written.weight;
    launches_.push_back({"norm_weight",
                         "columns",
                         {group.norm},
                         BytesOf(weight.gradient) + BytesOf(weight.input) + BytesOf(weight.rstd) +
                             BytesOf(weight.result)});
  }

  void AddNode(NodeId node) {
    const Op& op = graph_.op(node);
    OpFamily family = FamilyOf(op);
    if (op.effect() == Effect::kView || op.name() == "comm.wait" || IsIdle(node)) return;
    std::string form = family == OpFamily::matmul      ? "matmul"
                       : family == OpFamily::attention ? "attention"
                       : family == OpFamily::comm      ? "collective"
                                                       : "aten";
    launches_.push_back({std::string(op.name()), form, {node}, {}});
  }

  ArrangedGraph arranged_;
  const Graph& graph_;
  Uses uses_;
  Liveness liveness_;
  OptimizerRuns optimizer_;
  std::set<NodeId> spared_;
  // Bytes of the copies of parameters.
  std::map<int64_t, Bytes> copies_;
  std::map<NodeId, size_t> group_at_;
  std::vector<KernelLaunch> launches_;
};

}  // namespace

LaunchList ListLaunches(const Graph& graph, const std::optional<std::set<int64_t>>& copies) {
  return LaunchLister(ArrangeStep(graph, copies)).List();
}

}  // namespace heddle
