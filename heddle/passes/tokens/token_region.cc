#include "heddle/passes/tokens/token_region.h"

#include <algorithm>

#include "heddle/ops/ops.h"
#include "heddle/passes/fsdp/weights.h"
#include "heddle/passes/memory/blocks.h"

namespace heddle {
namespace {

std::optional<TokenPart> RowsOf(const std::optional<Cut>& cut) {
  if (!cut) return std::nullopt;
  return TokenPart{TokenPart::Kind::kRows, cut->dim};
}

// Slices of one piece each; none if one of them is not.
std::optional<NodeParts> RowsOf(const std::optional<NodeCut>& cut) {
  if (!cut) return std::nullopt;
  NodeParts parts;
  for (const auto& [from, to] :
       {std::pair(&cut->operands, &parts.operands), std::pair(&cut->results, &parts.results)}) {
    for (const std::optional<Cut>& one : *from) {
      if (one && one->blocks != 1) return std::nullopt;
      to->push_back(RowsOf(one));
    }
  }
  return parts;
}

}  // namespace

TokenRegion::TokenRegion(const Graph& graph, const Mesh& mesh, const Uses& uses, int64_t parts)
    : graph_(graph),
      mesh_(mesh),
      uses_(uses),
      parts_(parts),
      rules_(graph, mesh, parts),
      wanted_(graph.node_count()),
      nodes_(graph.node_count()),
      values_(graph.value_count()) {
  Blocks blocks(graph);
  for (NodeId node : graph.nodes())
    blocks_.push_back(static_cast<size_t>(blocks.of(node) - Blocks::kNone));
  open_.resize(static_cast<size_t>(blocks.count()) + 1);
  dispatches_.resize(open_.size());
  FindMixtures();
  Walk();
  DropBroken();
  for (size_t block = 0; block < open_.size(); ++block) {
    if (!open_[block]) continue;
    mixtures_ += static_cast<size_t>(std::ranges::count_if(dispatches_[block], [&](NodeId node) {
      return has(node) && graph[node].phase == Phase::kForward;
    }));
  }
}

std::optional<TokenPart::Kind> TokenRegion::KindOf(ValueId v) const {
  if (!v || !values_[v.index()]) return std::nullopt;
  return values_[v.index()]->kind;
}

NodeParts TokenRegion::Empty(NodeId node) const {
  NodeParts parts;
  parts.operands.resize(graph_.operands(node).size());
  parts.results.resize(graph_[node].result_count);
  return parts;
}

bool TokenRegion::IsExpert(NodeId start) const { return WhyOf(graph_, start) == Why::kExpert; }

// --- Where it starts

// A forward dispatch sends rows of tokens that an index picks.
void TokenRegion::FindMixtures() {
  for (NodeId node : graph_.nodes()) {
    if (graph_[node].op != op::comm_dispatch) continue;
    dispatches_[BlockAt(node)].push_back(node);
    if (graph_[node].phase != Phase::kForward) continue;
    NodeId pick = graph_[graph_.operands(node)[0]].producer;
    if (!pick || graph_[pick].op != op::index_select) {
      refusals_.emplace_back(node, "what it sends is not picked from tokens");
      continue;
    }
    open_[BlockAt(node)] = true;
    ValueId tokens = graph_.operands(pick)[0];
    GoUp(tokens);
    NodeId maker = graph_[tokens].producer;
    if (!maker || !wanted_[maker.index()]) values_[tokens.index()] = TokenPart{Kind::kRows, 0};
  }
}

void TokenRegion::GoUp(ValueId tokens) {
  NodeId first = graph_[tokens].producer;
  if (!first) return;
  size_t block = BlockAt(first);
  std::vector<std::pair<ValueId, Cut>> open{{tokens, Cut{}}};
  while (!open.empty()) {
    auto [v, cut] = open.back();
    open.pop_back();
    NodeId node = graph_[v].producer;
    if (!node || wanted_[node.index()] || BlockAt(node) != block) continue;
    Effect effect = graph_.op(node).effect();
    if (effect != Effect::kPure && effect != Effect::kView) continue;
    size_t result = v.index() - graph_[node].first_result.index();
    std::optional<NodeCut> found = rules_.FromResult(node, result, cut);
    std::optional<NodeParts> parts = RowsOf(found);
    if (!parts) continue;
    wanted_[node.index()] = std::move(parts);
    for (size_t i = 0; i < found->operands.size(); ++i) {
      if (found->operands[i]) open.emplace_back(graph_.operands(node)[i], *found->operands[i]);
    }
  }
}

// --- How it goes on

void TokenRegion::Walk() {
  for (NodeId node : graph_.nodes()) {
    if (!open_[BlockAt(node)]) continue;
    auto in_parts = [&](ValueId v) { return KindOf(v).has_value(); };
    std::optional<NodeParts> parts;
    if (std::ranges::any_of(graph_.operands(node), in_parts)) parts = PartsOf(node);
    if (!parts && wanted_[node.index()]) parts = wanted_[node.index()];
    if (!parts || !Fits(node, *parts)) continue;
    for (size_t i = 0; i < parts->results.size(); ++i)
      values_[graph_.results(node)[i].index()] = parts->results[i];
    nodes_[node.index()] = std::move(parts);
  }
}

std::optional<NodeParts> TokenRegion::PartsOf(NodeId node) {
  Effect effect = graph_.op(node).effect();
  if (effect == Effect::kComm) return OfExchange(node);
  if (effect != Effect::kPure && effect != Effect::kView) return std::nullopt;
  if (std::optional<NodeParts> parts = OfCounts(node)) return parts;
  if (std::optional<NodeParts> parts = OfOrder(node)) return parts;
  if (graph_[node].op == op::_grouped_mm) return OfGroups(node);
  return OfFactors(node);
}

// Counts are exchanged, and rows by them. A wait gives what was launched.
std::optional<NodeParts> TokenRegion::OfExchange(NodeId node) const {
  OpId op = graph_[node].op;
  NodeParts parts = Empty(node);
  for (size_t i = 0; i < parts.operands.size(); ++i)
    parts.operands[i] = values_[graph_.operands(node)[i].index()];
  if (op == op::comm_wait) {
    parts.results = parts.operands;
    return parts;
  }
  if (!IsExpert(node)) return std::nullopt;
  constexpr TokenPart kOwnRows{Kind::kOwn, 0};
  constexpr TokenPart kSums{Kind::kSum, 0};
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

// What is linear in whole numbers: sums of parts are exact.
std::optional<NodeParts> TokenRegion::OfCounts(NodeId node) const {
  OpId op = graph_[node].op;
  if (graph_.operands(node).empty() || graph_[node].result_count != 1) return std::nullopt;
  ValueId from = graph_.operands(node)[0];
  std::optional<Kind> kind = KindOf(from);
  NodeParts parts = Empty(node);
  parts.operands[0] = values_[from.index()];
  parts.results[0] = TokenPart{Kind::kSum};
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

// The order of an order of rows.
bool TokenRegion::UndoesOrder(ValueId v) const {
  if (!IsSortedOrder(v)) return false;
  ValueId order = graph_.operands(graph_[v].producer)[0];
  return IsSortedOrder(order) && KindOf(graph_.operands(graph_[order].producer)[0]) == Kind::kRows;
}

// Sorts, and what goes by the order that they find.
std::optional<NodeParts> TokenRegion::OfOrder(NodeId node) const {
  OpId op = graph_[node].op;
  constexpr TokenPart kRows{Kind::kRows, 0};
  constexpr TokenPart kOwn{Kind::kOwn, 0};
  NodeParts parts = Empty(node);
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
    // Rows in the order of experts, or back in that of tokens.
    if (undoes != (at(0) == kOwn) || (!undoes && at(0) && at(0) != kRows)) return std::nullopt;
    parts.operands[0] = undoes ? kOwn : kRows;
    parts.results[0] = undoes ? kRows : kOwn;
    return parts;
  }
  // The gradients of both, added to nothing.
  NodeId zeros = graph_[graph_.operands(node)[0]].producer;
  if (!zeros || !graph_.op(zeros).def->constant) return std::nullopt;
  std::optional<TokenPart> added = at(2);
  if (undoes ? added && added != kRows : added != kOwn) return std::nullopt;
  parts.operands[0] = kRows;
  parts.operands[2] = undoes ? kRows : kOwn;
  parts.results[0] = undoes ? kOwn : kRows;
  return parts;
}

std::optional<NodeParts> TokenRegion::OfGroups(NodeId node) const {
  std::span<const ValueId> operands = graph_.operands(node);
  // Nothing behind the ends of groups is given.
  if (std::ranges::any_of(operands.subspan(3), [](ValueId v) { return bool(v); }))
    return std::nullopt;
  if (KindOf(operands[2]) != Kind::kSum) return std::nullopt;
  NodeParts parts = Empty(node);
  for (size_t i = 0; i < 3; ++i) parts.operands[i] = values_[operands[i].index()];
  constexpr TokenPart kOwnRows{Kind::kOwn, 0};
  constexpr TokenPart kOwnColumns{Kind::kOwn, 1};
  bool sums = graph_.types().rank(graph_.type(operands[1])) == 2;
  if (parts.operands[0] != (sums ? kOwnColumns : kOwnRows)) return std::nullopt;
  if (sums ? parts.operands[1] != kOwnRows : parts.operands[1].has_value()) return std::nullopt;
  parts.results[0] = sums ? TokenPart{Kind::kSum} : kOwnRows;
  return parts;
}

// The loop that divides an operand divides whatever has it.
std::optional<NodeParts> TokenRegion::OfFactors(NodeId node) {
  const Factors* factors = rules_.FactorsOf(node);
  if (factors == nullptr || factors->sums_parts) return std::nullopt;
  std::optional<FactorId> loop;
  std::optional<Kind> kind;
  // The outermost loop of a dimension that is more than one round.
  auto outermost = [&](const TensorFactors& tensor, uint32_t dim) -> std::optional<FactorId> {
    if (dim >= tensor.size()) return std::nullopt;
    for (FactorId f : tensor[dim]) {
      if (factors->factors[f].size != 1) return f;
    }
    return std::nullopt;
  };
  for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
    std::optional<Kind> of = KindOf(graph_.operands(node)[i]);
    if (!of || of == Kind::kSum || Unread({node, static_cast<uint32_t>(i)})) continue;
    std::optional<FactorId> f =
        outermost(factors->operands[i], values_[graph_.operands(node)[i].index()]->dim);
    if (!f || (loop && (*loop != *f || *kind != *of))) return std::nullopt;
    loop = f;
    kind = of;
  }
  if (!loop) return std::nullopt;
  const Factor& factor = factors->factors[*loop];
  bool reduces = factor.kind == FactorKind::kReduce && factor.reduce == ReduceOp::kSum;
  if ((factor.kind != FactorKind::kKeep && !reduces) || factor.masked) return std::nullopt;
  auto place = [&](const TensorFactors& tensor) -> std::optional<TokenPart> {
    for (uint32_t d = 0; d < tensor.size(); ++d) {
      if (outermost(tensor, d) == loop) return TokenPart{*kind, d};
    }
    return std::nullopt;
  };
  auto has = [&](const TensorFactors& tensor) {
    return std::ranges::any_of(
        tensor, [&](const DimFactors& dim) { return std::ranges::find(dim, *loop) != dim.end(); });
  };
  NodeParts parts = Empty(node);
  for (size_t i = 0; i < parts.operands.size(); ++i) {
    parts.operands[i] = place(factors->operands[i]);
    if (!parts.operands[i] && has(factors->operands[i])) return std::nullopt;
    // Nothing of the whole is own.
    bool own = parts.operands[i] && *kind == Kind::kOwn;
    if (own && values_[graph_.operands(node)[i].index()] != parts.operands[i]) return std::nullopt;
  }
  for (size_t i = 0; i < parts.results.size(); ++i) {
    parts.results[i] = place(factors->results[i]);
    if (!parts.results[i] && has(factors->results[i])) return std::nullopt;
    if (!parts.results[i] && reduces) parts.results[i] = TokenPart{Kind::kSum};
  }
  return parts;
}

bool TokenRegion::Unread(const Use& use) {
  if (graph_.op(use.node).def->constant) return true;
  const Factors* factors = rules_.FactorsOf(use.node);
  return factors != nullptr &&
         std::ranges::find(factors->unread, use.operand) != factors->unread.end();
}

NodeCut TokenRegion::CutOf(NodeId node, const NodeParts& parts) const {
  auto cut = [&](const std::optional<TokenPart>& part, ValueId v) -> std::optional<Cut> {
    if (!part || part->kind == Kind::kSum) return std::nullopt;
    const Type& type = graph_.types()[graph_.type(v)];
    const Type& rows = type.async ? type.elements[0] : type;
    return IsSymbol(rows.dims[part->dim]) ? std::nullopt : std::optional(Cut{part->dim, 1});
  };
  NodeCut out;
  for (size_t i = 0; i < parts.operands.size(); ++i)
    out.operands.push_back(cut(parts.operands[i], graph_.operands(node)[i]));
  for (size_t i = 0; i < parts.results.size(); ++i)
    out.results.push_back(cut(parts.results[i], graph_.results(node)[i]));
  return out;
}

bool TokenRegion::Fits(NodeId node, const NodeParts& parts) {
  OpId op = graph_[node].op;
  if (op == op::comm_wait) return true;
  // A shape that is written out has no number for a symbol.
  auto symbolic = [&](ValueId v) {
    return std::ranges::any_of(graph_.types().dims(graph_.type(v)), IsSymbol);
  };
  if (!graph_.op(node).def->shape_attr.empty() && symbolic(graph_[node].first_result)) return false;
  if (op != op::comm_dispatch && op != op::comm_combine)
    return rules_.Holds(node, CutOf(node, parts));
  // As many rows in every part.
  std::string_view attr = op == op::comm_dispatch ? "most" : "rows_back";
  return std::get<int64_t>(*graph_.attrs(node).Find(attr)) % parts_ == 0;
}

// --- What cannot be

bool TokenRegion::ReadWhole(ValueId v) {
  if (uses_.is_output(v)) return true;
  return std::ranges::any_of(uses_.of(v), [&](const Use& use) {
    bool follows = has(use.node) && of(use.node).operands[use.operand] == of(v);
    return !follows && !Unread(use);
  });
}

void TokenRegion::DropBlock(NodeId node, std::string why) {
  size_t block = BlockAt(node);
  open_[block] = false;
  refusals_.emplace_back(dispatches_[block][0], std::move(why));
  for (NodeId other : graph_.nodes()) {
    if (BlockAt(other) != block) continue;
    nodes_[other.index()].reset();
    for (ValueId v : graph_.results(other)) values_[v.index()].reset();
  }
}

std::optional<std::string> TokenRegion::FindBroken(NodeId node) {
  for (size_t i = 0; i < of(node).operands.size(); ++i) {
    const std::optional<TokenPart>& part = of(node).operands[i];
    ValueId v = graph_.operands(node)[i];
    if (part && part->kind != Kind::kRows && of(v) != part)
      return fmt::format("%{} is not in parts", graph_.name(v));
  }
  for (ValueId v : graph_.results(node)) {
    if (KindOf(v) != Kind::kOwn && !graph_.types()[graph_.type(v)].async) continue;
    if (uses_.is_output(v)) return fmt::format("%{} is an output", graph_.name(v));
    for (const Use& use : uses_.of(v)) {
      bool follows = has(use.node) && of(use.node).operands[use.operand] == of(v);
      if (!follows && !Unread(use))
        return fmt::format("%{} cannot be in parts, and reads %{}, which every part has for itself",
                           graph_.name(graph_[use.node].first_result), graph_.name(v));
    }
  }
  return std::nullopt;
}

// A block that goes may take others with it.
void TokenRegion::DropBroken() {
  bool again = true;
  while (again) {
    again = false;
    for (NodeId node : graph_.nodes()) {
      if (!has(node)) continue;
      if (std::optional<std::string> why = FindBroken(node)) {
        DropBlock(node, *std::move(why));
        again = true;
      }
    }
  }
  for (size_t block = 0; block < open_.size(); ++block) {
    if (open_[block] && !has(dispatches_[block][0]))
      DropBlock(dispatches_[block][0], fmt::format("its rows are not in {} equal parts", parts_));
  }
}

}  // namespace heddle
