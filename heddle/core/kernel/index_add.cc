#include "heddle/core/kernel/index_add.h"

#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

// ATen adds narrow rows in another order.
constexpr int64_t kLeastWidth = 64;
// The kernel lists 15 sources of a row. If a row has more, it looks at every index.
constexpr int64_t kMostSourcesPerRow = 12;
constexpr int64_t kVectorBytes = 16;

}  // namespace

std::optional<IndexAddRun> FindIndexAddRun(const Graph& graph, NodeId node) {
  if (graph[node].op != op::index_add || graph.attrs(node).list.size() != 1) return std::nullopt;
  const int64_t* dim = std::get_if<int64_t>(graph.attrs(node).Find("dim"));
  if (dim == nullptr || *dim != 0) return std::nullopt;
  const TypeTable& types = graph.types();
  std::span<const ValueId> operands = graph.operands(node);
  std::span<const Dim> rows = types.dims(graph.type(operands[0]));
  std::span<const Dim> sources = types.dims(graph.type(operands[2]));
  DType dtype = types.dtype(graph.type(operands[0]));
  if (rows.size() != 2 || (dtype != DType::kF32 && dtype != DType::kBF16) ||
      types.dtype(graph.type(operands[1])) != DType::kI64)
    return std::nullopt;
  for (Dim size : {rows[0], rows[1], sources[0]}) {
    if (IsSymbol(size) || size == 0 || size > INT32_MAX) return std::nullopt;
  }
  const int64_t bytes = rows[1] * (dtype == DType::kBF16 ? 2 : 4);
  if (rows[1] < kLeastWidth || bytes % kVectorBytes != 0 ||
      sources[0] > rows[0] * kMostSourcesPerRow)
    return std::nullopt;
  NodeId producer = graph[operands[0]].producer;
  const OpId made_by = producer ? graph[producer].op : OpId();
  return IndexAddRun{
      .self = operands[0],
      .index = operands[1],
      .source = operands[2],
      .rows = rows[0],
      .width = rows[1],
      .sources = sources[0],
      .dtype = dtype,
      .to_zero = made_by == op::new_zeros || made_by == op::zeros || made_by == op::zeros_like};
}

}  // namespace heddle
