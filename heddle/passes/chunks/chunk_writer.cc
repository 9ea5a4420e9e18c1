#include "heddle/passes/chunks/chunk_writer.h"

#include <algorithm>

#include "heddle/ops/ops.h"

namespace heddle {
namespace {

// `%x.1` of `%x`, `%x.1!` of `%x!`.
std::string ChunkName(std::string_view name, int64_t chunk) {
  bool handle = name.ends_with('!');
  if (handle) name.remove_suffix(1);
  return fmt::format("{}.{}{}", name, chunk, handle ? "!" : "");
}

int64_t Outside(const Dims& dims, size_t dim) {
  int64_t product = 1;
  for (size_t d = 0; d < dim; ++d) product *= dims[d];
  return product;
}

}  // namespace

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

ValueId ChunkWriter::Add(NodeId before, OpId op, const std::vector<ValueId>& operands,
                         const Attrs& attrs, Type type, std::string_view name) {
  ResultSpec result{.type = graph_.types().Intern(type), .name = name};
  NodeSpec spec{.op = op,
                .operands = operands,
                .attrs = graph_.InternAttrs(attrs),
                .results = {&result, 1},
                .scope = graph_[before].scope,
                .phase = graph_[before].phase};
  return graph_[rewriter_.InsertBefore(before, spec)].first_result;
}

ValueId ChunkWriter::View(NodeId before, ValueId v, const Dims& dims, std::string_view name) {
  Attrs attrs;
  attrs.Set("size", std::vector<int64_t>(dims.begin(), dims.end()));
  Type type = graph_.types()[graph_.type(v)];
  type.dims = dims;
  return Add(before, op::view, {v}, attrs, std::move(type), name);
}

// Rows that lie apart are copied together: collectives, and views behind, want them in one piece.
ValueId ChunkWriter::Slice(ValueId v, const Cut& cut, int64_t chunk) {
  Type type = graph_.types()[graph_.type(v)];
  std::string name = ChunkName(graph_.name(v), chunk);
  int64_t block = type.dims[cut.dim] / cut.blocks;
  int64_t part = block / rules_.chunks();
  Dims dims = type.dims;
  uint32_t dim = cut.dim;
  if (cut.blocks > 1) {
    dims[dim] = block;
    dims.insert(dims.begin() + dim, cut.blocks);
    v = View(at_, v, dims, name);
    ++dim;
  }
  dims[dim] = part;
  Attrs attrs;
  if (dim != 0) attrs.Set("dim", static_cast<int64_t>(dim));
  attrs.Set("start", chunk * part);
  attrs.Set("end", (chunk + 1) * part);
  Type sliced = type;
  sliced.dims = dims;
  v = Add(at_, op::slice_Tensor, {v}, attrs, sliced, name);
  if (Outside(dims, dim) > 1) {
    Attrs layout;
    layout.Set("memory_format", MemoryFormat::kContiguous);
    v = Add(at_, op::clone, {v}, layout, sliced, name);
    moves_.emplace_back(graph_.name(v));
  }
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
  Attrs attrs;
  attrs.list_sizes = {static_cast<uint32_t>(parts.size())};
  if (dim != 0) attrs.Set("dim", static_cast<int64_t>(dim));
  Type joined = type;
  joined.dims = dims;
  ValueId whole = Add(at_, op::cat, parts, attrs, joined, name);
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
  bool unmoved = Outside(dims, dim_of(split)) == 1 && Outside(part, dim_of(node)) == 1;
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
  std::vector<std::string> names;
  for (ValueId v : graph_.results(node)) names.emplace_back(graph_.name(v));
  AttrsId attrs = graph_.InternAttrs(rules_.ChunkAttrs(node, cut));
  for (int64_t chunk = 0; chunk < rules_.chunks(); ++chunk) {
    std::vector<ValueId> operands;
    for (size_t i = 0; i < cut.operands.size(); ++i) operands.push_back(Operand(node, i, chunk));
    std::vector<ResultSpec> results;
    std::vector<std::string> chunk_names;
    for (const std::string& name : names) chunk_names.push_back(ChunkName(name, chunk));
    for (size_t i = 0; i < names.size(); ++i) {
      ValueId v = graph_.results(node)[i];
      Type type = rules_.ChunkType(graph_.types()[graph_.type(v)], cut.results[i]);
      results.push_back(
          {.type = graph_.types().Intern(type), .name = chunk_names[i], .keep = graph_[v].keep});
    }
    auto& known = chunks_[static_cast<size_t>(chunk)];
    Type first = graph_.types()[results[0].type];
    if (NodeId split = UndoneSplit(node, operands)) {
      ValueId whole = graph_.operands(split)[0];
      known[graph_[node].first_result.index()] = View(node, whole, first.dims, chunk_names[0]);
      Drop(split);
      continue;
    }
    NodeSpec spec{.op = graph_[node].op,
                  .operands = operands,
                  .attrs = attrs,
                  .results = results,
                  .scope = graph_[node].scope,
                  .phase = graph_[node].phase,
                  .stream = graph_[node].stream};
    NodeId copy = rewriter_.InsertBefore(node, spec);
    copies_.push_back({std::string(graph_.name(graph_[copy].first_result)), names[0], chunk});
    for (size_t i = 0; i < names.size(); ++i)
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
