// How nodes work on parts of the tokens.
#include <algorithm>

#include "heddle/compile/passes/tokens/token_region.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// The outermost loop of a dimension with more than one iteration.
std::optional<FactorId> Outermost(const Factors& factors, const TensorFactors& tensor,
                                  uint32_t dim) {
  if (dim >= tensor.size()) return std::nullopt;
  for (FactorId f : tensor[dim]) {
    if (factors.factors[f].size != 1) return f;
  }
  return std::nullopt;
}

}  // namespace

// Exchanges of counts, and of rows by counts. A wait has the cut of its launch.
std::optional<NodeCut> TokenRegion::OfExchange(NodeId node) const {
  OpId op = graph_[node].op;
  NodeCut parts = rules_.Empty(node);
  for (size_t i = 0; i < parts.operands.size(); ++i)
    parts.operands[i] = values_[graph_.operands(node)[i].index()];
  if (op == op::comm_wait) {
    parts.results = parts.operands;
    return parts;
  }
  if (WhyOf(graph_, node) != Why::kExpert) return std::nullopt;
  constexpr Cut kOwnRows{.kind = Kind::kOwn};
  constexpr Cut kSums{.kind = Kind::kSum};
  if (op == op::comm_all_to_all && parts.operands.size() == 1 && parts.operands[0] == kSums) {
    parts.results = parts.operands;
    return parts;
  }
  if (op != op::comm_dispatch && op != op::comm_combine) return std::nullopt;
  if (parts.operands[0] != kOwnRows || parts.operands[1] != kSums || parts.operands[2] != kSums)
    return std::nullopt;
  parts.results[0] = kOwnRows;
  return parts;
}

// Integer ops that are linear, so sums of parts are exact.
std::optional<NodeCut> TokenRegion::OfCounts(NodeId node) const {
  OpId op = graph_[node].op;
  if (graph_.operands(node).empty() || graph_[node].result_count != 1) return std::nullopt;
  ValueId from = graph_.operands(node)[0];
  std::optional<Kind> kind = KindOf(from);
  NodeCut parts = rules_.Empty(node);
  parts.operands[0] = values_[from.index()];
  parts.results[0] = Cut{.kind = Kind::kSum};
  if (op == op::bincount)
    return kind == Kind::kRows || kind == Kind::kOwn ? std::optional(parts) : std::nullopt;
  auto whole_number = [&](ValueId v) {
    DType dtype = graph_.types()[graph_.type(v)].dtype;
    return dtype == DType::kI64 || dtype == DType::kI32;
  };
  bool linear =
      op == op::view || op == op::sum_dim_IntList || op == op::cumsum || op == op::_to_copy;
  if (!linear || kind != Kind::kSum || !whole_number(from)) return std::nullopt;
  return whole_number(graph_[node].first_result) ? std::optional(parts) : std::nullopt;
}

bool TokenRegion::IsSortedOrder(ValueId v) const {
  NodeId sort = graph_[v].producer;
  return sort && graph_[sort].op == op::sort_stable && v == graph_.results(sort)[1];
}

// Whether the value is the inverse of an order of rows.
bool TokenRegion::UndoesOrder(ValueId v) const {
  if (!IsSortedOrder(v)) return false;
  ValueId order = graph_.operands(graph_[v].producer)[0];
  return IsSortedOrder(order) && KindOf(graph_.operands(graph_[order].producer)[0]) == Kind::kRows;
}

// Sorts, and indexing by the resulting order.
std::optional<NodeCut> TokenRegion::OfOrder(NodeId node) const {
  OpId op = graph_[node].op;
  constexpr Cut kRows;
  constexpr Cut kOwn{.kind = Kind::kOwn};
  NodeCut parts = rules_.Empty(node);
  auto at = [&](size_t i) { return values_[graph_.operands(node)[i].index()]; };
  if (op == op::sort_stable) {
    if (graph_.types().rank(graph_.type(graph_.operands(node)[0])) != 1) return std::nullopt;
    if (at(0) != kRows && at(0) != kOwn) return std::nullopt;
    parts.operands[0] = at(0);
    parts.results.assign(2, kOwn);
    return parts;
  }
  bool adds = op == op::index_add;
  if ((op != op::index_select && !adds) || rules_.DimAttr(node) != 0) return std::nullopt;
  ValueId index = graph_.operands(node)[1];
  if (at(1) != kOwn) return std::nullopt;
  parts.operands[1] = kOwn;
  bool undoes = UndoesOrder(index);
  if (!adds) {
    // Rows in expert order, or back in token order.
    if (undoes != (at(0) == kOwn) || (!undoes && at(0) && at(0) != kRows)) return std::nullopt;
    parts.operands[0] = undoes ? kOwn : kRows;
    parts.results[0] = undoes ? kRows : kOwn;
    return parts;
  }
  // The gradients of both: added to zeros.
  NodeId zeros = graph_[graph_.operands(node)[0]].producer;
  if (!zeros || !graph_.op(zeros).def->constant) return std::nullopt;
  std::optional<Cut> added = at(2);
  if (undoes ? added && added != kRows : added != kOwn) return std::nullopt;
  parts.operands[0] = kRows;
  parts.operands[2] = undoes ? kRows : kOwn;
  parts.results[0] = undoes ? kOwn : kRows;
  return parts;
}

std::optional<NodeCut> TokenRegion::OfGroups(NodeId node) const {
  std::span<const ValueId> operands = graph_.operands(node);
  // No rows follow the ends of groups.
  if (std::ranges::any_of(operands.subspan(3), [](ValueId v) { return bool(v); }))
    return std::nullopt;
  if (KindOf(operands[2]) != Kind::kSum) return std::nullopt;
  NodeCut parts = rules_.Empty(node);
  for (size_t i = 0; i < 3; ++i) parts.operands[i] = values_[operands[i].index()];
  constexpr Cut kOwnRows{.kind = Kind::kOwn};
  constexpr Cut kOwnColumns{.dim = 1, .kind = Kind::kOwn};
  bool sums = graph_.types().rank(graph_.type(operands[1])) == 2;
  if (parts.operands[0] != (sums ? kOwnColumns : kOwnRows)) return std::nullopt;
  if (sums ? parts.operands[1] != kOwnRows : parts.operands[1].has_value()) return std::nullopt;
  parts.results[0] = sums ? Cut{.kind = Kind::kSum} : kOwnRows;
  return parts;
}

// A loop that divides one operand divides all tensors that have it.
std::optional<NodeCut> TokenRegion::OfFactors(NodeId node) {
  const Factors* factors = rules_.FactorsOf(node);
  if (factors == nullptr || factors->sums_parts) return std::nullopt;
  std::optional<FactorId> loop;
  std::optional<Kind> kind;
  for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
    std::optional<Kind> of = KindOf(graph_.operands(node)[i]);
    if (!of || of == Kind::kSum || Unread({node, static_cast<uint32_t>(i)})) continue;
    std::optional<FactorId> f =
        Outermost(*factors, factors->operands[i], values_[graph_.operands(node)[i].index()]->dim);
    if (!f || (loop && (*loop != *f || *kind != *of))) return std::nullopt;
    loop = f;
    kind = of;
  }
  if (!loop) return std::nullopt;
  const Factor& factor = factors->factors[*loop];
  bool reduces = factor.kind == FactorKind::kReduce && factor.reduce == ReduceOp::kSum;
  if (factor.kind != FactorKind::kKeep && !reduces) return std::nullopt;
  if (factor.masked || factor.counted) return std::nullopt;
  auto place = [&](const TensorFactors& tensor) -> std::optional<Cut> {
    for (uint32_t d = 0; d < tensor.size(); ++d) {
      if (Outermost(*factors, tensor, d) == loop) return Cut{.dim = d, .kind = *kind};
    }
    return std::nullopt;
  };
  auto has = [&](const TensorFactors& tensor) {
    return std::ranges::any_of(
        tensor, [&](const DimFactors& dim) { return std::ranges::find(dim, *loop) != dim.end(); });
  };
  NodeCut parts = rules_.Empty(node);
  for (size_t i = 0; i < parts.operands.size(); ++i) {
    parts.operands[i] = place(factors->operands[i]);
    if (!parts.operands[i] && has(factors->operands[i])) return std::nullopt;
    // Tensors of kind kOwn and whole tensors do not mix.
    bool own = parts.operands[i] && *kind == Kind::kOwn;
    if (own && values_[graph_.operands(node)[i].index()] != parts.operands[i]) return std::nullopt;
  }
  for (size_t i = 0; i < parts.results.size(); ++i) {
    parts.results[i] = place(factors->results[i]);
    if (!parts.results[i] && has(factors->results[i])) return std::nullopt;
    if (!parts.results[i] && reduces) parts.results[i] = Cut{.kind = Kind::kSum};
  }
  return parts;
}

bool TokenRegion::Unread(const Use& use) {
  if (graph_.op(use.node).def->constant) return true;
  const Factors* factors = rules_.FactorsOf(use.node);
  return factors != nullptr &&
         std::ranges::find(factors->unread, use.operand) != factors->unread.end();
}

Attrs TokenRegion::AttrsOf(NodeId node, int64_t piece) const {
  Attrs attrs = CutRegion::AttrsOf(node, piece);
  const bool dispatch = graph_[node].op == op::comm_dispatch;
  for (std::string_view name : {"most", "rows_back"}) {
    bool exchanges = dispatch || graph_[node].op == op::comm_combine;
    if (const AttrValue* rows = exchanges ? attrs.Find(name) : nullptr)
      attrs.Set(name, std::get<int64_t>(*rows) / pieces());
  }
  // Each piece has its own number of rows.
  const AttrValue* size = dispatch ? graph_.attrs(node).Find("size") : nullptr;
  if (size != nullptr && std::holds_alternative<std::string>(*size))
    attrs.Set("size", fmt::format("{}_{}", std::get<std::string>(*size), piece));
  return attrs;
}

bool TokenRegion::Fits(NodeId node, const NodeCut& parts) {
  OpId op = graph_[node].op;
  if (op == op::comm_wait) return true;
  // A shape attribute cannot contain the number of a symbol.
  auto symbolic = [&](ValueId v) {
    return std::ranges::any_of(graph_.types().dims(graph_.type(v)), IsSymbol);
  };
  if (!graph_.op(node).def->shape_attr.empty() && symbolic(graph_[node].first_result)) return false;
  if (op != op::comm_dispatch && op != op::comm_combine) return rules_.Holds(node, parts);
  // The same number of rows in every part.
  std::string_view attr = op == op::comm_dispatch ? "most" : "rows_back";
  return std::get<int64_t>(*graph_.attrs(node).Find(attr)) % pieces() == 0;
}

}  // namespace heddle::compile
