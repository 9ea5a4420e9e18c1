#include "heddle/passes/chunks/chunk_nodes.h"

#include <algorithm>

#include "heddle/ops/ops.h"

namespace heddle {

std::string ChunkName(std::string_view name, int64_t chunk) {
  bool handle = name.ends_with('!');
  if (handle) name.remove_suffix(1);
  return fmt::format("{}.{}{}", name, chunk, handle ? "!" : "");
}

bool LiesInOnePiece(const Dims& dims, size_t dim) {
  return std::all_of(dims.begin(), dims.begin() + dim, [](Dim d) { return d == 1; });
}

ValueId ChunkNodes::Add(NodeId before, OpId op, std::span<const ValueId> operands,
                        const Attrs& attrs, const Type& type, std::string_view name) {
  ResultSpec result{.type = graph_.types().Intern(type), .name = name};
  NodeSpec spec{.op = op,
                .operands = operands,
                .attrs = graph_.InternAttrs(attrs),
                .results = {&result, 1},
                .scope = graph_[before].scope,
                .phase = graph_[before].phase};
  return graph_[rewriter_.InsertBefore(before, spec)].first_result;
}

ValueId ChunkNodes::Slice(NodeId before, ValueId v, uint32_t dim, int64_t rows, int64_t chunk,
                          std::string_view name) {
  Type type = graph_.types()[graph_.type(v)];
  type.dims[dim] = rows;
  Attrs attrs;
  if (dim != 0) attrs.Set("dim", static_cast<int64_t>(dim));
  attrs.Set("start", chunk * rows);
  attrs.Set("end", (chunk + 1) * rows);
  ValueId slice = Add(before, op::slice_Tensor, {{v}}, attrs, type, name);
  if (LiesInOnePiece(type.dims, dim)) return slice;
  Attrs layout;
  layout.Set("memory_format", MemoryFormat::kContiguous);
  return Add(before, op::clone, {{slice}}, layout, type, name);
}

ValueId ChunkNodes::Cat(NodeId before, std::span<const ValueId> chunks, uint32_t dim,
                        const Type& type, std::string_view name) {
  Attrs attrs;
  attrs.list_sizes = {static_cast<uint32_t>(chunks.size())};
  if (dim != 0) attrs.Set("dim", static_cast<int64_t>(dim));
  return Add(before, op::cat, chunks, attrs, type, name);
}

NodeId ChunkNodes::Copy(NodeId node, std::span<const ValueId> operands, AttrsId attrs,
                        std::span<const Type> types, int64_t chunk) {
  std::vector<std::string> names;
  for (ValueId v : graph_.results(node)) names.push_back(ChunkName(graph_.name(v), chunk));
  std::vector<ResultSpec> results;
  for (size_t i = 0; i < names.size(); ++i) {
    results.push_back({.type = graph_.types().Intern(types[i]),
                       .name = names[i],
                       .keep = graph_[graph_.results(node)[i]].keep});
  }
  NodeSpec spec{.op = graph_[node].op,
                .operands = operands,
                .attrs = attrs,
                .results = results,
                .scope = graph_[node].scope,
                .phase = graph_[node].phase,
                .stream = graph_[node].stream};
  return rewriter_.InsertBefore(node, spec);
}

}  // namespace heddle
