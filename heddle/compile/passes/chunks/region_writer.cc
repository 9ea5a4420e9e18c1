#include "heddle/compile/passes/chunks/region_writer.h"

#include <algorithm>

#include "heddle/core/ops/ops.h"

namespace heddle::compile {

Status RegionWriter::Run() {
  const std::vector<CutRegion::Stage> stages = region_.Stages();
  for (const CutRegion::Stage& stage : stages) {
    Status written = Write(stage);
    if (written.ok()) continue;
    rewriter_.Abandon();
    return written;
  }
  for (const CutRegion::Stage& stage : stages) {
    for (NodeId node : stage.nodes) rewriter_.Erase(node);
  }
  rewriter_.Commit();
  return Done{};
}

Status RegionWriter::Write(const CutRegion::Stage& stage) {
  anchor_ = stage.anchor;
  std::vector<ValueId> results;
  for (NodeId node : stage.nodes) {
    for (ValueId v : graph_.results(node)) results.push_back(v);
  }
  for (int64_t piece = 0; piece < region_.pieces(); ++piece) {
    for (NodeId node : stage.nodes) HEDDLE_RETURN_IF_ERROR(AddCopy(node, piece));
    for (ValueId v : results) AddToSum(v, piece);
  }
  for (ValueId v : results) {
    LeaveType(v);
    AddWhole(v);
  }
  return Done{};
}

Status RegionWriter::AddCopy(NodeId node, int64_t piece) {
  auto& known = pieces_[static_cast<size_t>(piece)];
  if (region_.IsShape(node)) {
    known[graph_[node].first_result.index()] = Operand(node, 0, piece);
    return Done{};
  }
  std::vector<ValueId> operands;
  for (size_t i = 0; i < region_.cut(node).operands.size(); ++i)
    operands.push_back(Operand(node, i, piece));
  const Attrs attrs = region_.AttrsOf(node, piece);
  OpArgs args(graph_.op(node), attrs, mesh_, graph_.types().symbols(),
              OperandTypes(graph_, operands));
  HEDDLE_TRY(Types types, InferTypes(args));
  const std::string original(graph_.name(graph_[node].first_result));
  if (NodeId split = UndoneSplit(node, operands)) {
    known[graph_[node].first_result.index()] =
        nodes_.View(anchor_, graph_.operands(split)[0], types[0].dims, PieceName(original, piece));
    Drop(split);
    return Done{};
  }
  std::vector<std::string> names;
  for (ValueId v : graph_.results(node)) names.push_back(NameOf(v, piece));
  std::vector<ResultSpec> results;
  for (size_t i = 0; i < names.size(); ++i) {
    results.push_back({.type = graph_.types().Intern(types[i]),
                       .name = names[i],
                       .keep = region_.KeepOf(graph_.results(node)[i])});
  }
  NodeId copy = nodes_.Copy(anchor_, node, operands, attrs, results);
  copies_.push_back({std::string(graph_.name(graph_[copy].first_result)), original, piece});
  for (size_t i = 0; i < names.size(); ++i)
    known[graph_.results(node)[i].index()] = graph_.results(copy)[i];
  return Done{};
}

ValueId RegionWriter::Operand(NodeId node, size_t operand, int64_t piece) {
  ValueId v = graph_.operands(node)[operand];
  if (!v) return v;
  const Use use{node, static_cast<uint32_t>(operand)};
  const std::optional<Cut>& cut = region_.cut(node).operands[operand];
  const auto& known = pieces_[static_cast<size_t>(piece)];
  auto at = known.find(v.index());
  if (at != known.end() && (region_.ReadsPieces(use) || (!cut && region_.Unread(use))))
    return at->second;
  v = rewriter_.Resolve(v);
  return cut ? Slice(v, *cut, piece) : v;
}

ValueId RegionWriter::Slice(ValueId v, const Cut& cut, int64_t piece) {
  auto [known, added] = slices_.try_emplace({v, cut.dim, piece});
  if (!added) return known->second;
  const Dims dims = graph_.types()[graph_.type(v)].dims;
  const std::string name = NameOf(v, piece);
  const int64_t block = dims[cut.dim] / cut.blocks;
  uint32_t dim = cut.dim;
  if (cut.blocks > 1) {
    Dims blocks = dims;
    blocks[dim] = block;
    blocks.insert(blocks.begin() + dim, cut.blocks);
    v = nodes_.View(anchor_, v, blocks, name);
    ++dim;
  }
  const CutRegion::Rows rows = region_.RowsOf(block, piece);
  ValueId slice = region_.style().packs
                      ? nodes_.PackedSlice(anchor_, v, dim, rows.begin, rows.count, name)
                      : nodes_.Slice(anchor_, v, dim, rows.begin, rows.count, name);
  NodeId last = graph_[slice].producer;
  if (graph_[last].op == op::clone) moves_.emplace_back(graph_.name(graph_.operands(last)[0]));
  moves_.emplace_back(graph_.name(slice));
  if (cut.blocks > 1) {
    Dims flat = dims;
    flat[cut.dim] /= region_.pieces();
    slice = nodes_.View(anchor_, slice, flat, name);
  }
  return known->second = slice;
}

ValueId RegionWriter::Join(ValueId v, const Cut& cut) {
  Type type = graph_.types()[graph_.type(v)];
  std::vector<ValueId> pieces;
  for (int64_t piece = 0; piece < region_.pieces(); ++piece) pieces.push_back(of(v, piece));
  Type joined = type;
  uint32_t dim = cut.dim;
  std::string name(graph_.name(v));
  if (cut.blocks > 1) {
    int64_t block = type.dims[dim] / cut.blocks;
    joined.dims[dim] = block / region_.pieces();
    joined.dims.insert(joined.dims.begin() + dim, cut.blocks);
    for (ValueId& piece : pieces) piece = nodes_.View(anchor_, piece, joined.dims, name);
    ++dim;
    joined.dims[dim] = block;
  }
  ValueId whole = nodes_.Cat(anchor_, pieces, dim, joined, name);
  if (cut.blocks == 1) {
    // The join takes the name of `v`.
    moves_.push_back(name);
    return whole;
  }
  moves_.emplace_back(graph_.name(whole));
  views_.push_back(name);
  return nodes_.View(anchor_, whole, type.dims, name);
}

void RegionWriter::AddToSum(ValueId v, int64_t piece) {
  const std::optional<Cut>& cut = region_.cut(v);
  Type type = graph_.types()[graph_.type(v)];
  if (!cut || cut->kind != Cut::Kind::kSum || type.async || !region_.ReadWhole(v)) return;
  if (region_.style().adds_in_f32 && IsFloat(type.dtype) && type.dtype != DType::kF64)
    type.dtype = DType::kF32;
  const TypeId wide = graph_.types().Intern(type);
  ValueId part = Cast(of(v, piece), wide);
  ValueId& sum = sums_[v.index()];
  if (piece > 0) {
    const std::string name(graph_.name(v));
    part = nodes_.Add(Inserter::Before(anchor_), op::add_Tensor, name, {sum, part}, {}, wide);
    // The last sum takes the name of `v`.
    moves_.emplace_back(piece + 1 < region_.pieces() ? graph_.name(part) : name);
  }
  sum = part;
}

ValueId RegionWriter::Cast(ValueId v, TypeId type) {
  if (graph_.type(v) == type) return v;
  Attrs attrs;
  attrs.Set("dtype", graph_.types().dtype(type));
  const std::string name(graph_.name(v));
  return nodes_.Add(Inserter::Before(anchor_), op::_to_copy, name, {v}, attrs, type);
}

void RegionWriter::LeaveType(ValueId v) {
  if (!region_.cut(v)) return;
  for (const Use& use : region_.uses().of(v)) {
    if (!region_.has(use.node) && region_.Unread(use))
      rewriter_.SetOperand(use.node, use.operand, of(v, 0));
  }
}

void RegionWriter::AddWhole(ValueId v) {
  const std::optional<Cut>& cut = region_.cut(v);
  const bool own = cut && cut->kind == Cut::Kind::kOwn;
  if (own || graph_.types()[graph_.type(v)].async) return;
  if (cut) {
    if (!region_.ReadWhole(v)) return;
    ValueId whole =
        cut->kind == Cut::Kind::kSum ? Cast(sums_.at(v.index()), graph_.type(v)) : Join(v, *cut);
    if (region_.style().keeps_names) rewriter_.SwapNames(whole, v);
    rewriter_.ReplaceValue(v, whole);
    return;
  }
  if (region_.uses().of(v).empty() && !region_.uses().is_output(v)) return;
  // All pieces have the same value.
  ValueId whole = of(v, 0);
  rewriter_.SwapNames(whole, v);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    PieceCopy& copy = copies_[copies_.size() - 1 - i];
    if (copy.name == graph_.name(v)) copy.name = graph_.name(whole);
  }
  rewriter_.ReplaceValue(v, whole);
}

NodeId RegionWriter::UndoneSplit(NodeId node, const std::vector<ValueId>& operands) const {
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
  // Only these are known to have contiguous rows.
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

void RegionWriter::Drop(NodeId copy) {
  std::string_view name = graph_.name(graph_[copy].first_result);
  auto at = std::ranges::find(copies_.rbegin(), copies_.rend(), name, &PieceCopy::name);
  copies_.erase(std::next(at).base());
  rewriter_.Erase(copy);
}

}  // namespace heddle::compile
