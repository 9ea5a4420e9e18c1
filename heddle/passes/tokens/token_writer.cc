#include "heddle/passes/tokens/token_writer.h"

#include <algorithm>

#include "heddle/ops/ops.h"

namespace heddle {

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
  NodeId copy = nodes_.Copy(node, operands, attrs, types, part);
  copies_.emplace(graph_.name(graph_[copy].first_result), part);
  for (size_t i = 0; i < types.size(); ++i)
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
  int64_t rows = graph_.types().dims(graph_.type(v))[dim] / region_.parts();
  ValueId slice = nodes_.Slice(node, v, dim, rows, part, ChunkName(graph_.name(v), part));
  NodeId last = graph_[slice].producer;
  if (graph_[last].op == op::clone) moves_.emplace_back(graph_.name(graph_.operands(last)[0]));
  moves_.emplace_back(graph_.name(slice));
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
    for (int64_t part = 1; part < region_.parts(); ++part) {
      whole = nodes_.Add(node, op::add_Tensor, {{whole, parts_.at({v, part})}}, {}, type, name);
      moves_.emplace_back(graph_.name(whole));
    }
  } else {
    std::vector<ValueId> all;
    for (int64_t part = 0; part < region_.parts(); ++part) all.push_back(parts_.at({v, part}));
    whole = nodes_.Cat(node, all, of->dim, type, name);
    moves_.emplace_back(graph_.name(whole));
  }
  rewriter_.SwapNames(whole, v);
  moves_.back() = name;
  rewriter_.ReplaceValue(v, whole);
}

}  // namespace heddle
