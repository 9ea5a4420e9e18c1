#include "heddle/core/ir/storage.h"

#include <algorithm>

namespace heddle {
namespace {

bool IsUpdate(const Graph& graph, NodeId node) {
  return graph[node].op && graph.op(node).effect() == Effect::kUpdate;
}

// Whether an update leaves operand `i` unchanged.
bool IsSpared(const Graph& graph, NodeId node, size_t i) {
  const std::optional<SparedList>& spared = graph.op(node).def->spared;
  if (!spared) return false;
  const Attrs& attrs = graph.attrs(node);
  std::span<const ValueId> operands = graph.operands(node);
  bool in_list = false;
  size_t at = 0;
  size_t lists = 0;
  for (const Arg& arg : graph.op(node).schema.args) {
    if (!IsOperand(arg.kind)) continue;
    size_t count = 1;
    if (IsListOperand(arg.kind))
      count = lists < attrs.list_sizes.size() ? attrs.list_sizes[lists++] : 0;
    if (arg.name == spared->list) in_list = i >= at && i < at + count;
    if (arg.name == spared->unless && at < operands.size() && operands[at]) return false;
    at += count;
  }
  return in_list;
}

}  // namespace

bool IsWait(const Graph& graph, NodeId node) {
  if (!graph[node].op || graph[node].operand_count == 0) return false;
  const std::vector<Arg>& args = graph.op(node).schema.args;
  return !args.empty() && args[0].kind == ArgKind::kAsync;
}

ValueId ViewedOperand(const Graph& graph, NodeId node) {
  // A node that the parser could not read has no op.
  bool is_view = graph[node].op && graph.op(node).effect() == Effect::kView;
  return is_view && graph[node].operand_count > 0 ? graph.operands(node)[0] : ValueId();
}

BufferDonations::BufferDonations(const Graph& graph) : graph_(graph) {
  auto is_update = [&](NodeId id) { return IsUpdate(graph, id); };
  if (std::ranges::none_of(graph.nodes(), is_update)) return;
  roots_.resize(graph.value_count());
  for (ValueId v : graph.values()) roots_[v] = v;
  used_.resize(graph.value_count());
  for (NodeId id : graph.nodes()) {
    ValueId viewed = ViewedOperand(graph, id);
    for (ValueId result : graph.results(id)) {
      if (viewed) roots_[result] = roots_[viewed];
    }
    for (ValueId v : graph.operands(id)) {
      if (v) used_[v] = true;
    }
  }
  for (const Output& output : graph.outputs()) {
    if (output.value) used_[output.value] = true;
  }
  takers_.resize(graph.value_count());
  for (NodeId id : graph.nodes()) {
    for (size_t i = 0; i < graph[id].operand_count; ++i) {
      if (!Takes(id, i)) continue;
      NodeId& taker = takers_[roots_[graph.operands(id)[i]]];
      if (!taker) taker = id;
    }
  }
}

bool BufferDonations::Takes(NodeId node, size_t i) const {
  if (!IsUpdate(graph_, node) || i >= graph_[node].operand_count ||
      i >= graph_[node].result_count || !graph_.operands(node)[i]) {
    return false;
  }
  return used_[graph_.results(node)[i]] || !IsSpared(graph_, node, i);
}

}  // namespace heddle
