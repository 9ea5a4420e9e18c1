#include "heddle/passes/tokens/token_region.h"

#include <algorithm>

#include "heddle/analysis/blocks.h"
#include "heddle/ops/ops.h"

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
