#include "heddle/compile/passes/chunks/chunk_region.h"

#include <algorithm>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/kernel_time.h"

namespace heddle::compile {

ChunkRegion::ChunkRegion(const Graph& graph, const Uses& uses, CutRules& rules,
                         std::vector<bool> fixed)
    : CutRegion(graph, uses, rules), fixed_(std::move(fixed)), refused_(graph.node_count()) {}

bool ChunkRegion::IsStart(NodeId node) const { return IsLaunch(graph_, node); }
bool ChunkRegion::Works(NodeId node) const { return IsMatrixWork(graph_.op(node)); }

size_t ChunkRegion::collectives() const {
  size_t count = 0;
  for (NodeId id : graph_.nodes()) count += in_[id.index()] && IsStart(id) ? 1 : 0;
  return count;
}

void ChunkRegion::Grow(NodeId start, const Cut& cut) {
  if (in_[start.index()] || refused_[start.index()]) return;
  phase_ = graph_[start].phase;
  Join(start, rules_.FromOperand(start, 0, cut));
  while (!open_.empty()) {
    ValueId v = open_.back();
    open_.pop_back();
    Reach(v);
  }
}

// Adds the producer and the readers of the value.
void ChunkRegion::Reach(ValueId v) {
  const Cut cut = *values_[v.index()];
  if (NodeId producer = graph_[v].producer) {
    size_t result = v.index() - graph_[producer].first_result.index();
    if (!in_[producer.index()] && !refused_[producer.index()])
      Join(producer, rules_.FromResult(producer, result, cut));
  }
  for (const Use& use : uses_.of(v)) {
    if (!in_[use.node.index()] && !refused_[use.node.index()])
      Join(use.node, rules_.FromOperand(use.node, use.operand, cut));
  }
}

void ChunkRegion::Join(NodeId node, const std::optional<NodeCut>& cut) {
  refused_[node.index()] = true;
  if (!cut || fixed_[node.index()] || graph_[node].phase != phase_) return;
  auto agrees = [&](ValueId v, const std::optional<Cut>& one) {
    return !one || !values_[v.index()] || *values_[v.index()] == *one;
  };
  for (size_t i = 0; i < cut->operands.size(); ++i) {
    if (!agrees(graph_.operands(node)[i], cut->operands[i])) return;
  }
  for (size_t i = 0; i < cut->results.size(); ++i) {
    if (!agrees(graph_.results(node)[i], cut->results[i])) return;
  }
  refused_[node.index()] = false;
  in_[node.index()] = true;
  cuts_[node.index()] = *cut;
  auto add = [&](ValueId v, const std::optional<Cut>& one) {
    if (!one || values_[v.index()]) return;
    values_[v.index()] = one;
    open_.push_back(v);
  };
  for (size_t i = 0; i < cut->operands.size(); ++i) add(graph_.operands(node)[i], cut->operands[i]);
  for (size_t i = 0; i < cut->results.size(); ++i) add(graph_.results(node)[i], cut->results[i]);
}

void ChunkRegion::MarkNear() {
  size_t count = graph_.node_count();
  behind_.assign(count, false);
  ahead_.assign(count, false);
  since_.assign(count, 0);
  until_.assign(count, 0);
  for (uint32_t n = 0; n < count; ++n) {
    if (!in_[n]) continue;
    for (ValueId v : graph_.operands(NodeId(n))) {
      NodeId p = v ? graph_[v].producer : NodeId();
      if (!p || !in_[p.index()]) continue;
      behind_[n] = behind_[n] || behind_[p.index()] || IsStart(p);
      since_[n] = std::max(since_[n], since_[p.index()]);
    }
    since_[n] = IsStart(NodeId(n)) ? 0 : since_[n] + (Works(NodeId(n)) ? 1 : 0);
  }
  for (uint32_t n = static_cast<uint32_t>(count); n-- > 0;) {
    if (!in_[n]) continue;
    for (ValueId v : graph_.results(NodeId(n))) {
      for (const Use& use : uses_.of(v)) {
        uint32_t later = use.node.index();
        if (!in_[later]) continue;
        ahead_[n] = ahead_[n] || ahead_[later] || IsStart(use.node);
        until_[n] = std::max(until_[n], until_[later]);
      }
    }
    until_[n] = IsStart(NodeId(n)) ? 0 : until_[n] + (Works(NodeId(n)) ? 1 : 0);
  }
}

bool ChunkRegion::TrimOnce() {
  MarkNear();
  size_t count = graph_.node_count();
  std::vector<bool> keep(count);
  // After the last collective, keep nodes that lead to the first products.
  for (uint32_t n = static_cast<uint32_t>(count); n-- > 0;) {
    if (!in_[n]) continue;
    bool leads = false;
    for (ValueId v : graph_.results(NodeId(n))) {
      for (const Use& use : uses_.of(v)) leads = leads || keep[use.node.index()];
    }
    if (IsStart(NodeId(n))) {
      // Keep the wait, or the products right before it.
      keep[n] = leads;
    } else if (ahead_[n]) {
      keep[n] = true;
    } else {
      keep[n] = behind_[n] && ((Works(NodeId(n)) && since_[n] == 1) || (since_[n] == 0 && leads));
    }
    // The wait for a collective of product results.
    if (graph_[NodeId(n)].op == op::comm_wait) {
      NodeId start = graph_[graph_.operands(NodeId(n))[0]].producer;
      NodeId given = graph_[graph_.operands(start)[0]].producer;
      keep[n] = keep[n] || ahead_[n] || (given && in_[given.index()] && since_[given.index()] > 0);
    }
  }
  // Before the first collective, keep nodes that lead from the last products to it.
  for (uint32_t n = 0; n < count; ++n) {
    if (!in_[n] || behind_[n] || IsStart(NodeId(n))) continue;
    bool led = false;
    for (ValueId v : graph_.operands(NodeId(n))) {
      NodeId p = v ? graph_[v].producer : NodeId();
      led = led || (p && keep[p.index()]);
    }
    keep[n] = keep[n] && ((Works(NodeId(n)) && until_[n] == 1) || (until_[n] == 0 && led));
  }
  bool dropped = keep != in_;
  in_ = keep;
  return dropped;
}

// A collective at the end of the region requires a copy of all results of its products. Returns
// false if no such collective is too expensive.
bool ChunkRegion::DropDear(const price::SimGraph& sim, const price::CostModel& model) {
  bool dropped = false;
  MarkNear();
  for (NodeId start : graph_.nodes()) {
    if (!in_[start.index()] || !IsStart(start) || ahead_[start.index()]) continue;
    Nanos copies;
    std::vector<uint32_t> tail{start.index()};
    std::vector<bool> seen(graph_.node_count());
    for (size_t i = 0; i < tail.size(); ++i) {
      for (ValueId v : graph_.results(NodeId(tail[i]))) {
        if (!graph_.types()[graph_.type(v)].async && ReadWhole(v))
          copies += model.Pack(graph_.types().bytes(graph_.type(v)));
        for (const Use& use : uses_.of(v)) {
          if (!in_[use.node.index()] || seen[use.node.index()]) continue;
          seen[use.node.index()] = true;
          tail.push_back(use.node.index());
        }
      }
    }
    Nanos hidden = sim[start].alone() - Nanos{sim[start].alone().value / rules_.chunks()};
    if (copies < hidden) continue;
    dropped = true;
    for (uint32_t node : tail) in_[node] = false;
  }
  return dropped;
}

void ChunkRegion::Trim(const price::SimGraph& sim, const price::CostModel& model, bool if_cheap) {
  while (true) {
    while (TrimOnce()) {
    }
    if (!if_cheap || !DropDear(sim, model)) return;
  }
}

}  // namespace heddle::compile
