#include "heddle/compile/passes/parallel/lower/attention_part.h"

#include <vector>

#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// The operands of `shard.attention`, and those of its backward op.
constexpr size_t kOperands = 3;
constexpr size_t kBackwardOperands = 6;

bool IsBackward(const Graph& graph, NodeId node) {
  return graph.op(node).schema.args[0].name != "query";
}

bool IsOfDocuments(const Graph& graph, NodeId node) {
  OpId op = graph[node].op;
  return op == op::heddle_document_attention || op == op::heddle_document_attention_backward;
}

}  // namespace

bool IsCausalAttention(const Graph& graph, NodeId node) {
  if (FamilyOf(graph.op(node)) != OpFamily::attention) return false;
  if (IsOfDocuments(graph, node)) return true;
  const AttrValue* causal = graph.attrs(node).Find("is_causal");
  return causal != nullptr && std::get<bool>(*causal);
}

ValueId QueryOf(const Graph& graph, NodeId node) {
  return graph.operands(node)[IsBackward(graph, node) ? 1 : 0];
}

void AttendToPart(Graph& graph, Rewriter& rewriter, NodeId node, const Axes& over) {
  bool backward = IsBackward(graph, node);
  std::span<const ValueId> all = graph.operands(node);
  // The other operands and results are sequence bounds and the state of dropout.
  size_t count = backward ? kBackwardOperands : kOperands;
  std::vector<ValueId> operands(all.begin(), all.begin() + static_cast<ptrdiff_t>(count));
  operands.push_back(IsOfDocuments(graph, node) ? all[count] : ValueId());
  std::vector<ResultSpec> results;
  for (size_t r = 0; r < (backward ? 3 : 2); ++r) {
    ValueId v = graph.results(node)[r];
    results.push_back({graph.type(v), graph.name(v)});
  }
  Attrs attrs;
  attrs.Set("over", over);
  if (const AttrValue* scale = graph.attrs(node).Find("scale")) attrs.Set("scale", *scale);
  NodeId part = rewriter.InsertBefore(
      node, {.op = backward ? op::shard_attention_backward : op::shard_attention,
             .operands = operands,
             .attrs = graph.InternAttrs(attrs),
             .results = results,
             .scope = graph[node].scope,
             .phase = graph[node].phase,
             .stream = graph[node].stream});
  for (size_t r = 0; r < results.size(); ++r) {
    ValueId old = graph.results(node)[r];
    rewriter.ReplaceValue(old, graph.results(part)[r]);
    rewriter.SwapNames(old, graph.results(part)[r]);
  }
  rewriter.Erase(node);
}

}  // namespace heddle::compile
