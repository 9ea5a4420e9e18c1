#include "heddle/core/analysis/weights.h"

#include <algorithm>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

// Whether the value comes from a reduction of gradients through nodes with one operand.
bool IsReduced(const Graph& graph, ValueId v) {
  while (NodeId node = v ? graph[v].producer : NodeId()) {
    if (IsWait(graph, node)) {
      NodeId launch = LaunchOf(graph, node);
      return launch && IsGradReduction(graph, launch);
    }
    if (graph[node].operand_count != 1) return false;
    v = graph.operands(node)[0];
  }
  return false;
}

}  // namespace

Why WhyOf(const Graph& graph, NodeId launch) {
  return std::get<Why>(*graph.attrs(launch).Find("why"));
}

std::string_view UnitOf(const Graph& graph, NodeId launch, size_t i) {
  const AttrValue* unit = graph.attrs(launch).Find("unit");
  return unit != nullptr ? std::string_view(EachString(*unit, i)) : std::string_view();
}

bool MovesWeight(const Graph& graph, NodeId node) {
  const AttrValue* why = IsLaunch(graph, node) ? graph.attrs(node).Find("why") : nullptr;
  return why != nullptr && std::get<Why>(*why) == Why::kUnshard;
}

bool IsUnshard(const Graph& graph, NodeId node) {
  return graph[node].op == op::comm_all_gather && WhyOf(graph, node) == Why::kUnshard;
}

bool IsGradReduction(const Graph& graph, NodeId node) {
  return Reduces(graph[node].op) && WhyOf(graph, node) == Why::kGrad;
}

Weights::Weights(const Graph& graph)
    : graph_(graph),
      weight_(graph.value_count()),
      gather_(graph.value_count()),
      param_(graph.value_count(), -1),
      carries_gradient_(graph.node_count()) {
  for (const Input& input : graph.inputs()) {
    if (input.role != InputRole::kParam) continue;
    weight_[input.value.index()] = true;
    param_[input.value.index()] = input.index;
  }
  for (NodeId node : graph.nodes()) {
    if (MakesWeight(node)) AddWeight(node);
  }
  for (const Output& output : graph.outputs()) {
    if (output.role == OutputRole::kGrad) FollowGradient(output);
  }
}

bool Weights::MakesWeight(NodeId node) const {
  std::span<const ValueId> operands = graph_.operands(node);
  if (operands.empty() || graph_[node].phase == Phase::kOptimizer) return false;
  if (!std::ranges::all_of(operands, [&](ValueId v) { return is_weight(v); })) return false;
  Effect effect = graph_.op(node).effect();
  if (effect == Effect::kView || graph_[node].op == op::comm_wait) return true;
  if (effect == Effect::kComm) return MovesWeight(graph_, node);
  return effect == Effect::kPure && (IsMove(graph_.op(node)) || graph_[node].op == op::shard_slice);
}

void Weights::AddWeight(NodeId node) {
  std::span<const ValueId> operands = graph_.operands(node);
  NodeId start = graph_[node].op == op::comm_wait ? graph_[operands[0]].producer : NodeId();
  size_t i = 0;
  for (ValueId v : graph_.results(node)) {
    weight_[v.index()] = true;
    // A wait has a result for each tensor that its launch was given.
    ValueId from = start ? graph_.operands(start)[i] : operands[0];
    param_[v.index()] = param_[from.index()];
    if (start && MovesWeight(graph_, start)) {
      gather_[v.index()] = {start, i};
    } else if (!IsLaunch(graph_, node)) {
      auto gathered = std::ranges::find_if(operands, [&](ValueId o) { return is_gathered(o); });
      if (gathered != operands.end()) gather_[v.index()] = gather_[gathered->index()];
    }
    ++i;
  }
}

std::string_view Weights::unit(ValueId v) const {
  const Source& source = gather_[v.index()];
  return UnitOf(graph_, source.node, source.operand);
}

void Weights::FollowGradient(const Output& output) {
  std::vector<ValueId> open{output.value};
  while (!open.empty()) {
    ValueId v = open.back();
    open.pop_back();
    if (!v || param_[v.index()] >= 0) continue;
    param_[v.index()] = output.index;
    NodeId node = graph_[v].producer;
    if (!node || graph_[node].phase == Phase::kForward) continue;
    size_t result = v.index() - graph_[node].first_result.index();
    std::span<const ValueId> operands = graph_.operands(node);
    if (IsWait(graph_, node)) {
      carries_gradient_[node.index()] = true;
      node = graph_[operands[0]].producer;
      if (!node || result >= graph_.operands(node).size()) continue;
      carries_gradient_[node.index()] = true;
      open.push_back(graph_.operands(node)[result]);
    } else if (operands.size() == 1) {
      carries_gradient_[node.index()] = true;
      open.push_back(operands[0]);
    } else if (graph_[node].op == op::add_Tensor && IsReduced(graph_, operands[1])) {
      // Groups of micro-batches are reduced one after the other, and then added.
      carries_gradient_[node.index()] = true;
      open.insert(open.end(), operands.begin(), operands.end());
    }
  }
}

}  // namespace heddle
