#include "heddle/core/kernel/half_turn.h"

#include <fmt/format.h>

#include "heddle/core/kernel/element.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

constexpr int64_t kHalf = kTurnWidth / 2;

int64_t IntAttr(const Graph& graph, NodeId node, std::string_view name, int64_t otherwise) {
  const AttrValue* value = graph.attrs(node).Find(name);
  const auto* found = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  return found == nullptr ? otherwise : *found;
}

// Whether attribute `dim` is the last one of `value`.
bool IsAlongRows(const Graph& graph, NodeId node, ValueId value) {
  auto rank = static_cast<int64_t>(graph.types().dims(graph.type(value)).size());
  int64_t dim = IntAttr(graph, node, "dim", 0);
  return dim == -1 || dim == rank - 1;
}

bool HasTurnedRows(const Graph& graph, ValueId value) {
  std::span<const Dim> dims = graph.types().dims(graph.type(value));
  DType dtype = graph.types().dtype(graph.type(value));
  return LanesOf(graph, value) > 0 && !dims.empty() && dims.back() == kTurnWidth &&
         (dtype == DType::kBF16 || dtype == DType::kF32);
}

// Which half of a row attributes `start` and `end` mean.
std::optional<bool> IsUpper(const Graph& graph, NodeId node) {
  int64_t start = IntAttr(graph, node, "start", 0);
  int64_t end = IntAttr(graph, node, "end", INT64_MAX);
  if (IntAttr(graph, node, "step", 1) != 1) return std::nullopt;
  if (start == 0 && end == kHalf) return false;
  if (start == kHalf && end >= kTurnWidth) return true;
  return std::nullopt;
}

// Half of the rows of a value, perhaps with the other sign.
struct Half {
  ValueId source;
  bool upper = false;
  std::string text;
  std::vector<NodeId> parts;
};
std::optional<Half> HalfOf(const Graph& graph, ValueId value) {
  Half half;
  half.text = "other";
  NodeId node = graph[value].producer;
  if (node && graph[node].op == op::neg) {
    half.text = "Neg(other)";
    half.parts.push_back(node);
    node = graph[graph.operands(node)[0]].producer;
  }
  if (!node || graph[node].op != op::slice_Tensor) return std::nullopt;
  half.source = graph.operands(node)[0];
  half.parts.push_back(node);
  std::optional<bool> upper = IsUpper(graph, node);
  if (!upper || !HasTurnedRows(graph, half.source) || !IsAlongRows(graph, node, half.source))
    return std::nullopt;
  half.upper = *upper;
  return half;
}

}  // namespace

std::optional<HalfTurn> HalfTurnOf(const Graph& graph, NodeId node) {
  bool cat = graph[node].op == op::cat;
  if (!cat && graph[node].op != op::slice_backward) return std::nullopt;
  ValueId result = graph[node].first_result;
  std::span<const ValueId> operands = graph.operands(node);
  if (operands.size() != (cat ? 2 : 1) || !HasTurnedRows(graph, result) ||
      !IsAlongRows(graph, node, result))
    return std::nullopt;
  std::optional<Half> first = HalfOf(graph, operands[0]);
  if (!first || graph.type(first->source) != graph.type(result)) return std::nullopt;
  if (!cat) {
    std::optional<bool> upper = IsUpper(graph, node);
    if (!upper || *upper == first->upper) return std::nullopt;
    return HalfTurn{first->source, first->parts,
                    *upper ? fmt::format("lower ? 0.f : {}", first->text)
                           : fmt::format("lower ? {} : 0.f", first->text)};
  }
  std::optional<Half> second = HalfOf(graph, operands[1]);
  if (!second || second->source != first->source || !first->upper || second->upper)
    return std::nullopt;
  HalfTurn turn{first->source, first->parts,
                fmt::format("lower ? {} : {}", first->text, second->text)};
  turn.parts.insert(turn.parts.end(), second->parts.begin(), second->parts.end());
  return turn;
}

}  // namespace heddle
