#include "heddle/compile/passes/chunks/piece_nodes.h"

#include <algorithm>

#include "heddle/core/ops/ops.h"

namespace heddle::compile {

std::string PieceName(std::string_view name, int64_t piece) {
  bool handle = name.ends_with('!');
  if (handle) name.remove_suffix(1);
  return fmt::format("{}.{}{}", name, piece, handle ? "!" : "");
}

bool LiesInOnePiece(const Dims& dims, size_t dim) {
  return std::all_of(dims.begin(), dims.begin() + dim, [](Dim d) { return d == 1; });
}

ValueId PieceNodes::Slice(NodeId before, ValueId v, uint32_t dim, int64_t begin, int64_t size,
                          std::string_view name) {
  Type type = graph_.types()[graph_.type(v)];
  type.dims[dim] = size;
  Attrs attrs;
  if (dim != 0) attrs.Set("dim", static_cast<int64_t>(dim));
  attrs.Set("start", begin);
  attrs.Set("end", begin + size);
  return Add(Before(before), op::slice_Tensor, name, {v}, attrs, graph_.types().Intern(type));
}

ValueId PieceNodes::PackedSlice(NodeId before, ValueId v, uint32_t dim, int64_t begin, int64_t size,
                                std::string_view name) {
  ValueId slice = Slice(before, v, dim, begin, size, name);
  if (LiesInOnePiece(graph_.types()[graph_.type(slice)].dims, dim)) return slice;
  Attrs layout;
  layout.Set("memory_format", MemoryFormat::kContiguous);
  return Add(Before(before), op::clone, name, {slice}, layout, graph_.type(slice));
}

ValueId PieceNodes::View(NodeId before, ValueId v, const Dims& dims, std::string_view name) {
  Attrs attrs;
  attrs.Set("size", std::vector<int64_t>(dims.begin(), dims.end()));
  Type type = graph_.types()[graph_.type(v)];
  type.dims = dims;
  return Add(Before(before), op::view, name, {v}, attrs, graph_.types().Intern(type));
}

ValueId PieceNodes::Cat(NodeId before, const std::vector<ValueId>& pieces, uint32_t dim,
                        const Type& type, std::string_view name) {
  Attrs attrs;
  attrs.list_sizes = {static_cast<uint32_t>(pieces.size())};
  if (dim != 0) attrs.Set("dim", static_cast<int64_t>(dim));
  return Add(Before(before), op::cat, name, pieces, attrs, graph_.types().Intern(type));
}

NodeId PieceNodes::Copy(NodeId before, NodeId like, std::span<const ValueId> operands,
                        const Attrs& attrs, std::span<const ResultSpec> results) {
  NodeSpec spec{.op = graph_[like].op,
                .operands = operands,
                .attrs = graph_.InternAttrs(attrs),
                .results = results,
                .scope = graph_[like].scope,
                .phase = graph_[like].phase,
                .stream = graph_[like].stream};
  return rewriter_.InsertBefore(before, spec);
}

}  // namespace heddle::compile
