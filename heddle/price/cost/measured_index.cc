#include "heddle/price/cost/measured_index.h"

#include <algorithm>

#include "heddle/core/ir/text/print.h"

namespace heddle::price {
namespace {

// `aten.mm(bf16[8,16], bf16[16,4])`
std::string CallText(std::string_view op, const std::vector<std::string>& operands) {
  std::string text(op);
  text += '(';
  for (size_t i = 0; i < operands.size(); ++i) text += (i == 0 ? "" : ", ") + operands[i];
  return text + ")";
}

bool HasAttrs(const Module& module, const Graph& graph, NodeId id,
              const std::vector<std::pair<std::string, std::string>>& wanted) {
  return std::ranges::all_of(wanted, [&](const auto& attr) {
    const AttrValue* value = graph.attrs(id).Find(attr.first);
    const Arg* arg = graph.op(id).schema.Find(attr.first);
    if (value == nullptr && arg != nullptr && arg->has_default) value = &arg->default_value;
    if (value == nullptr) return false;
    std::string text;
    AppendAttrValue(text, *value, module.mesh, graph.types().symbols());
    std::erase(text, ' ');
    return text == attr.second;
  });
}

MeasuredUse::Count CountUsed(const std::vector<bool>& used) {
  return {static_cast<size_t>(std::ranges::count(used, true)), used.size()};
}

}  // namespace

MeasuredIndex::MeasuredIndex(const MeasuredCosts& costs)
    : costs_(costs), used_(costs.ops.size()), used_curves_(costs.curves.size()) {
  for (size_t i = 0; i < costs.ops.size(); ++i)
    by_call_[CallText(costs.ops[i].op, costs.ops[i].operands)].push_back(i);
}

std::optional<Nanos> MeasuredIndex::Op(const Module& module, const Graph& graph, NodeId id) {
  bool opaque = graph[id].op == kOpaqueOp;
  std::vector<std::string> types;
  for (ValueId value : graph.operands(id)) {
    types.push_back(value ? PrintType(module, graph, graph.type(value), {}) : "none");
    std::erase(types.back(), ' ');
  }
  auto at = by_call_.find(
      CallText(opaque ? std::string_view(graph.attrs(id).opaque_op) : graph.op(id).name(), types));
  if (at == by_call_.end()) return std::nullopt;
  for (size_t i : at->second) {
    if (!HasAttrs(module, graph, id, costs_.ops[i].attrs)) continue;
    used_[i] = true;
    return costs_.ops[i].time;
  }
  return std::nullopt;
}

std::optional<Nanos> MeasuredIndex::Node(const Graph& graph, NodeId id) {
  if (costs_.nodes.empty() || graph[id].result_count == 0) return std::nullopt;
  // The first result may be unused, and then has no name in the file.
  std::optional<Nanos> time;
  for (ValueId result : graph.results(id)) {
    auto at = costs_.nodes.find(graph.name(result));
    if (at == costs_.nodes.end()) continue;
    if (!time) time = at->second;
    used_nodes_.insert(&at->second);
  }
  return time;
}

void MeasuredIndex::UseCurve(const Curve* curve) {
  if (curve != nullptr) used_curves_[static_cast<size_t>(curve - costs_.curves.data())] = true;
}

MeasuredUse MeasuredIndex::Use() const {
  MeasuredUse use;
  use.ops = CountUsed(used_);
  use.nodes = {used_nodes_.size(), costs_.nodes.size()};
  use.curves = CountUsed(used_curves_);
  for (const auto& [name, time] : costs_.nodes) {
    if (!used_nodes_.contains(&time)) use.unknown_nodes.push_back(name);
  }
  return use;
}

}  // namespace heddle::price
