#include "heddle/passes/chunks/chunk_writer.h"

#include <algorithm>

#include "heddle/ops/ops.h"

namespace heddle {

void ChunkWriter::Run() {
  std::vector<NodeId> nodes;
  for (NodeId id : graph_.nodes()) {
    if (region_.has(id)) nodes.push_back(id);
  }
  for (NodeId node : nodes) {
    at_ = node;
    AddCopies(node);
    for (size_t i = 0; i < graph_[node].result_count; ++i) AddWhole(node, i);
  }
  for (NodeId node : nodes) rewriter_.Erase(node);
  rewriter_.Commit();
}

ValueId ChunkWriter::View(NodeId before, ValueId v, const Dims& dims, std::string_view name) {
  Attrs attrs;
  attrs.Set("size", std::vector<int64_t>(dims.begin(), dims.end()));
  Type type = graph_.types()[graph_.type(v)];
  type.dims = dims;
  return nodes_.Add(before, op::view, {{v}}, attrs, type, name);
}

ValueId ChunkWriter::Slice(ValueId v, const Cut& cut, int64_t chunk) {
  Type type = graph_.types()[graph_.type(v)];
  std::string name = ChunkName(graph_.name(v), chunk);
  int64_t block = type.dims[cut.dim] / cut.blocks;
  uint32_t dim = cut.dim;
  if (cut.blocks > 1) {
    Dims dims = type.dims;
    dims[dim] = block;
    dims.insert(dims.begin() + dim, cut.blocks);
    v = View(at_, v, dims, name);
    ++dim;
  }
  v = nodes_.Slice(at_, v, dim, block / rules_.chunks(), chunk, name);
  if (graph_[graph_[v].producer].op == op::clone) moves_.emplace_back(graph_.name(v));
  if (cut.blocks == 1) return v;
  Dims flat = type.dims;
  flat[cut.dim] /= rules_.chunks();
  return View(at_, v, flat, name);
}

ValueId ChunkWriter::Join(ValueId v, const Cut& cut) {
  Type type = graph_.types()[graph_.type(v)];
  std::vector<ValueId> parts;
  for (const auto& chunk : chunks_) parts.push_back(chunk.at(v.index()));
  Dims dims = type.dims;
  uint32_t dim = cut.dim;
  std::string name(graph_.name(v));
  if (cut.blocks > 1) {
    int64_t block = type.dims[dim] / cut.blocks;
    dims[dim] = block / rules_.chunks();
    dims.insert(dims.begin() + dim, cut.blocks);
    for (ValueId& part : parts) part = View(at_, part, dims, name);
    ++dim;
    dims[dim] = block;
  }
  Type joined = type;
  joined.dims = dims;
  ValueId whole = nodes_.Cat(at_, parts, dim, joined, name);
  if (cut.blocks == 1) {
    // It takes over the name of what it stands for.
    moves_.push_back(name);
    return whole;
  }
  moves_.emplace_back(graph_.name(whole));
  views_.push_back(name);
  return View(at_, whole, type.dims, name);
}

ValueId ChunkWriter::Operand(NodeId node, size_t operand, int64_t chunk) {
  ValueId v = graph_.operands(node)[operand];
  const std::optional<Cut>& cut = region_.cut(node).operands[operand];
  if (!v || !cut) return v ? rewriter_.Resolve(v) : v;
  auto& known = chunks_[static_cast<size_t>(chunk)];
  auto at = known.find(v.index());
  if (at != known.end()) return at->second;
  return known[v.index()] = Slice(rewriter_.Resolve(v), *cut, chunk);
}

NodeId ChunkWriter::UndoneSplit(NodeId node, const std::vector<ValueId>& operands) const {
  if (graph_[node].op != op::cat) return {};
  NodeId split = graph_[operands[0]].producer;
  if (!split || graph_[split].op != op::split_Tensor) return {};
  if (operands.size() != graph_[split].result_count) return {};
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] != graph_.results(split)[i]) return {};
    if (!region_.ReadOnce(graph_.operands(node)[i])) return {};
  }
  ValueId whole = graph_.operands(split)[0];
  NodeId maker = graph_[whole].producer;
  while (maker && graph_[maker].op == op::view) maker = graph_[graph_.operands(maker)[0]].producer;
  // What surely lies in rows.
  if (!maker || (graph_[maker].op != op::comm_wait && graph_[maker].op != op::mm)) return {};
  const Dims& dims = graph_.types()[graph_.type(whole)].dims;
  const Dims& part = graph_.types()[graph_.type(operands[0])].dims;
  auto dim_of = [&](NodeId id) {
    const AttrValue* dim = graph_.attrs(id).Find("dim");
    int64_t at = dim != nullptr ? std::get<int64_t>(*dim) : 0;
    return static_cast<size_t>(at < 0 ? at + static_cast<int64_t>(dims.size()) : at);
  };
  bool unmoved = LiesInOnePiece(dims, dim_of(split)) && LiesInOnePiece(part, dim_of(node));
  return unmoved ? split : NodeId();
}

void ChunkWriter::Drop(NodeId copy) {
  std::string_view name = graph_.name(graph_[copy].first_result);
  auto at = std::ranges::find(copies_.rbegin(), copies_.rend(), name, &ChunkCopy::name);
  copies_.erase(std::next(at).base());
  rewriter_.Erase(copy);
}

void ChunkWriter::AddCopies(NodeId node) {
  const NodeCut& cut = region_.cut(node);
  std::string name(graph_.name(graph_[node].first_result));
  AttrsId attrs = graph_.InternAttrs(rules_.ChunkAttrs(node, cut));
  std::vector<Type> types;
  for (size_t i = 0; i < cut.results.size(); ++i) {
    const Type& whole = graph_.types()[graph_.type(graph_.results(node)[i])];
    types.push_back(rules_.ChunkType(whole, cut.results[i]));
  }
  for (int64_t chunk = 0; chunk < rules_.chunks(); ++chunk) {
    std::vector<ValueId> operands;
    for (size_t i = 0; i < cut.operands.size(); ++i) operands.push_back(Operand(node, i, chunk));
    auto& known = chunks_[static_cast<size_t>(chunk)];
    if (NodeId split = UndoneSplit(node, operands)) {
      ValueId whole = graph_.operands(split)[0];
      known[graph_[node].first_result.index()] =
          View(node, whole, types[0].dims, ChunkName(name, chunk));
      Drop(split);
      continue;
    }
    NodeId copy = nodes_.Copy(node, operands, attrs, types, chunk);
    copies_.push_back({std::string(graph_.name(graph_[copy].first_result)), name, chunk});
    for (size_t i = 0; i < types.size(); ++i)
      known[graph_.results(node)[i].index()] = graph_.results(copy)[i];
  }
}

// For whoever reads the whole. A result that is not divided is the same in every chunk.
void ChunkWriter::AddWhole(NodeId node, size_t result) {
  ValueId v = graph_.results(node)[result];
  if (graph_.types()[graph_.type(v)].async || !region_.ReadWhole(v)) return;
  const std::optional<Cut>& cut = region_.cut(node).results[result];
  ValueId whole = cut ? Join(v, *cut) : chunks_[0].at(v.index());
  rewriter_.SwapNames(whole, v);
  for (size_t i = 0; !cut && i < chunks_.size(); ++i) {
    ChunkCopy& copy = copies_[copies_.size() - 1 - i];
    if (copy.name == graph_.name(v)) copy.name = graph_.name(whole);
  }
  rewriter_.ReplaceValue(v, whole);
}

}  // namespace heddle
