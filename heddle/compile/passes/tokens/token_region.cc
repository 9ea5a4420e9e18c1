#include "heddle/compile/passes/tokens/token_region.h"

#include <algorithm>

#include "heddle/core/analysis/blocks.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

bool IsInBlocks(const std::optional<Cut>& cut) { return cut && cut->blocks != 1; }

}  // namespace

TokenRegion::TokenRegion(const Graph& graph, const Uses& uses, CutRules& rules)
    : CutRegion(graph, uses, rules), wanted_(graph.node_count()) {
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

std::optional<Cut::Kind> TokenRegion::KindOf(ValueId v) const {
  if (!v || !values_[v.index()]) return std::nullopt;
  return values_[v.index()]->kind;
}

// --- Starting points

// Finds forward dispatches of token rows that an index selects.
void TokenRegion::FindMixtures() {
  for (NodeId node : graph_.nodes()) {
    if (graph_[node].op != op::comm_dispatch) continue;
    dispatches_[BlockAt(node)].push_back(node);
    if (graph_[node].phase != Phase::kForward) continue;
    NodeId pick = graph_[graph_.operands(node)[0]].producer;
    if (!pick || graph_[pick].op != op::index_select) {
      refusals_.emplace_back(node, "it sends rows that are not indexed from tokens");
      continue;
    }
    open_[BlockAt(node)] = true;
    ValueId tokens = graph_.operands(pick)[0];
    GoUp(tokens);
    NodeId maker = graph_[tokens].producer;
    if (!maker || !wanted_[maker.index()]) values_[tokens.index()] = Cut{};
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
    if (!found || std::ranges::any_of(found->operands, IsInBlocks) ||
        std::ranges::any_of(found->results, IsInBlocks))
      continue;
    wanted_[node.index()] = found;
    for (size_t i = 0; i < found->operands.size(); ++i) {
      if (found->operands[i]) open.emplace_back(graph_.operands(node)[i], *found->operands[i]);
    }
  }
}

// --- Growing

void TokenRegion::Walk() {
  for (NodeId node : graph_.nodes()) {
    if (!open_[BlockAt(node)]) continue;
    auto in_parts = [&](ValueId v) { return KindOf(v).has_value(); };
    std::optional<NodeCut> parts;
    if (std::ranges::any_of(graph_.operands(node), in_parts)) parts = PartsOf(node);
    if (!parts && wanted_[node.index()]) parts = wanted_[node.index()];
    if (!parts || !Fits(node, *parts)) continue;
    for (size_t i = 0; i < parts->results.size(); ++i)
      values_[graph_.results(node)[i].index()] = parts->results[i];
    in_[node.index()] = true;
    cuts_[node.index()] = *std::move(parts);
  }
}

std::optional<NodeCut> TokenRegion::PartsOf(NodeId node) {
  Effect effect = graph_.op(node).effect();
  if (effect == Effect::kComm) return OfExchange(node);
  if (effect != Effect::kPure && effect != Effect::kView) return std::nullopt;
  if (std::optional<NodeCut> parts = OfCounts(node)) return parts;
  if (std::optional<NodeCut> parts = OfOrder(node)) return parts;
  if (graph_[node].op == op::_grouped_mm) return OfGroups(node);
  return OfFactors(node);
}

// --- Removing

void TokenRegion::DropBlock(NodeId node, std::string why) {
  size_t block = BlockAt(node);
  open_[block] = false;
  refusals_.emplace_back(dispatches_[block][0], std::move(why));
  for (NodeId other : graph_.nodes()) {
    if (BlockAt(other) != block) continue;
    in_[other.index()] = false;
    for (ValueId v : graph_.results(other)) values_[v.index()].reset();
  }
}

std::optional<std::string> TokenRegion::FindBroken(NodeId node) {
  for (size_t i = 0; i < cut(node).operands.size(); ++i) {
    const std::optional<Cut>& part = cut(node).operands[i];
    ValueId v = graph_.operands(node)[i];
    if (part && part->kind != Kind::kRows && cut(v) != part)
      return fmt::format("%{} is not divided into parts", graph_.name(v));
  }
  for (ValueId v : graph_.results(node)) {
    if (KindOf(v) != Kind::kOwn && !graph_.types()[graph_.type(v)].async) continue;
    if (uses_.is_output(v)) return fmt::format("%{} is an output", graph_.name(v));
    for (const Use& use : uses_.of(v)) {
      if (!ReadsPieces(use) && !Unread(use))
        return fmt::format(
            "%{} cannot be divided into parts, but reads %{}, which each part has separately",
            graph_.name(graph_[use.node].first_result), graph_.name(v));
    }
  }
  return std::nullopt;
}

// Removing a block may require removing others.
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
      DropBlock(dispatches_[block][0],
                fmt::format("its rows cannot be divided into {} equal parts", pieces()));
  }
}

}  // namespace heddle::compile
