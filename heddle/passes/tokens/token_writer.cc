#include "heddle/passes/tokens/token_writer.h"

#include <algorithm>

#include "heddle/ops/ops.h"

namespace heddle {
namespace {

// `%x.1` of `%x`, `%x.1!` of `%x!`.
std::string PartName(std::string_view name, int64_t part) {
  bool handle = name.ends_with('!');
  if (handle) name.remove_suffix(1);
  return fmt::format("{}.{}{}", name, part, handle ? "!" : "");
}

}  // namespace

Status TokenWriter::Run() {
  std::vector<NodeId> nodes;
  for (NodeId node : graph_.nodes()) {
    if (region_.has(node)) nodes.push_back(node);
  }
  for (NodeId node : nodes) {
    Status written = Write(node);
    if (written.ok()) continue;
    rewriter_.Abandon();
    return written;
  }
  for (NodeId node : nodes) rewriter_.Erase(node);
  rewriter_.Commit();
  return Done{};
}

Status TokenWriter::Write(NodeId node) {
  for (int64_t part = 0; part < region_.parts(); ++part)
    HEDDLE_RETURN_IF_ERROR(WriteCopy(node, part));
  std::vector<ValueId> results(graph_.results(node).begin(), graph_.results(node).end());
  for (ValueId v : results) {
    LeaveType(v);
    AddWhole(node, v);
  }
  return Done{};
}

Attrs TokenWriter::AttrsOf(NodeId node, int64_t part) const {
  Attrs attrs = region_.rules().ChunkAttrs(node, region_.CutOf(node, region_.of(node)));
  for (std::string_view name : {"most", "rows_back"}) {
    bool exchanges = graph_[node].op == op::comm_dispatch || graph_[node].op == op::comm_combine;
    if (const AttrValue* rows = exchanges ? attrs.Find(name) : nullptr)
      attrs.Set(name, std::get<int64_t>(*rows) / region_.parts());
  }
  // Parts have numbers of rows of their own.
  const AttrValue* size =
      graph_[node].op == op::comm_dispatch ? graph_.attrs(node).Find("size") : nullptr;
  if (size != nullptr && std::holds_alternative<std::string>(*size)) {
    std::string name = fmt::format("{}_{}", std::get<std::string>(*size), part);
    attrs.Set("size", std::move(name));
  }
  return attrs;
}

Status TokenWriter::WriteCopy(NodeId node, int64_t part) {
  std::vector<ValueId> operands;
  for (size_t i = 0; i < region_.of(node).operands.size(); ++i)
    operands.push_back(Operand(node, i, part));
  AttrsId attrs = graph_.InternAttrs(AttrsOf(node, part));
  SymbolTable& symbols = graph_.types().symbols();
  OpArgs args(graph_.op(node), graph_.attrs_table()[attrs], mesh_, symbols,
              OperandTypes(graph_, operands));
  HEDDLE_TRY(Types types, InferTypes(args));
  std::vector<std::string> names;
  for (ValueId v : graph_.results(node)) names.push_back(PartName(graph_.name(v), part));
  std::vector<ResultSpec> results;
  for (size_t i = 0; i < names.size(); ++i)
    results.push_back({.type = graph_.types().Intern(types[i]),
                       .name = names[i],
                       .keep = graph_[graph_.results(node)[i]].keep});
  NodeSpec spec{.op = graph_[node].op,
                .operands = operands,
                .attrs = attrs,
                .results = results,
                .scope = graph_[node].scope,
                .phase = graph_[node].phase,
                .stream = graph_[node].stream};
  NodeId copy = rewriter_.InsertBefore(node, spec);
  copies_.emplace(graph_.name(graph_[copy].first_result), part);
  for (size_t i = 0; i < names.size(); ++i)
    parts_[{graph_.results(node)[i], part}] = graph_.results(copy)[i];
  return Done{};
}

ValueId TokenWriter::Operand(NodeId node, size_t i, int64_t part) {
  ValueId v = graph_.operands(node)[i];
  if (!v) return v;
  const std::optional<TokenPart>& want = region_.of(node).operands[i];
  auto known = parts_.find({v, part});
  if (want && region_.of(v) == want && known != parts_.end()) return known->second;
  // Of an operand whose type alone is read any part will do.
  if (!want && known != parts_.end() && region_.Unread({node, static_cast<uint32_t>(i)}))
    return known->second;
  return want ? Slice(node, rewriter_.Resolve(v), want->dim, part) : rewriter_.Resolve(v);
}

ValueId TokenWriter::Slice(NodeId node, ValueId v, uint32_t dim, int64_t part) {
  auto [known, added] = slices_.try_emplace({v, dim, part});
  if (!added) return known->second;
  Type type = graph_.types()[graph_.type(v)];
  int64_t rows = type.dims[dim] / region_.parts();
  Attrs attrs;
  if (dim != 0) attrs.Set("dim", static_cast<int64_t>(dim));
  attrs.Set("start", part * rows);
  attrs.Set("end", (part + 1) * rows);
  type.dims[dim] = rows;
  std::string name = PartName(graph_.name(v), part);
  ValueId slice = Add(node, op::slice_Tensor, {v}, attrs, type, name);
  // Rows that lie apart are copied together: views behind want them in one piece.
  bool apart =
      std::any_of(type.dims.begin(), type.dims.begin() + dim, [](Dim d) { return d != 1; });
  if (apart) {
    Attrs layout;
    layout.Set("memory_format", MemoryFormat::kContiguous);
    slice = Add(node, op::clone, {slice}, layout, type, name);
  }
  return slices_[{v, dim, part}] = slice;
}

void TokenWriter::LeaveType(ValueId v) {
  for (const Use& use : uses_.of(v)) {
    if (!region_.has(use.node) && region_.of(v) && region_.Unread(use))
      rewriter_.SetOperand(use.node, use.operand, parts_.at({v, 0}));
  }
}

void TokenWriter::AddWhole(NodeId node, ValueId v) {
  const std::optional<TokenPart>& of = region_.of(v);
  Type type = graph_.types()[graph_.type(v)];
  if (type.async || (of && of->kind == TokenPart::Kind::kOwn)) return;
  if (!of) {
    // The same in every part.
    rewriter_.ReplaceValue(v, parts_.at({v, 0}));
    return;
  }
  if (!region_.ReadWhole(v)) return;
  std::string name(graph_.name(v));
  ValueId whole = parts_.at({v, 0});
  if (of->kind == TokenPart::Kind::kSum) {
    for (int64_t part = 1; part < region_.parts(); ++part)
      whole = Add(node, op::add_Tensor, {whole, parts_.at({v, part})}, {}, type, name);
  } else {
    std::vector<ValueId> all;
    for (int64_t part = 0; part < region_.parts(); ++part) all.push_back(parts_.at({v, part}));
    Attrs attrs;
    attrs.list_sizes = {static_cast<uint32_t>(all.size())};
    if (of->dim != 0) attrs.Set("dim", static_cast<int64_t>(of->dim));
    whole = Add(node, op::cat, all, attrs, type, name);
  }
  rewriter_.SwapNames(whole, v);
  moves_.back() = name;
  rewriter_.ReplaceValue(v, whole);
}

ValueId TokenWriter::Add(NodeId before, OpId op, const std::vector<ValueId>& operands,
                         const Attrs& attrs, const Type& type, std::string_view name) {
  ResultSpec result{.type = graph_.types().Intern(type), .name = name};
  NodeSpec spec{.op = op,
                .operands = operands,
                .attrs = graph_.InternAttrs(attrs),
                .results = {&result, 1},
                .scope = graph_[before].scope,
                .phase = graph_[before].phase};
  ValueId v = graph_[rewriter_.InsertBefore(before, spec)].first_result;
  moves_.emplace_back(graph_.name(v));
  return v;
}

}  // namespace heddle
