#include "heddle/core/analysis/max_flow.h"

#include <algorithm>

#include "heddle/core/base/check.h"

namespace heddle {
namespace {

constexpr uint32_t kUnreached = UINT32_MAX;

}  // namespace

FlowNodeId MaxFlow::AddNode() { return FlowNodeId(node_count_++); }

FlowEdgeId MaxFlow::AddEdge(FlowNodeId from, FlowNodeId to, int64_t capacity) {
  HEDDLE_CHECK(capacity >= 0, "a capacity below 0");
  HEDDLE_CHECK(std::max(from.index(), to.index()) < node_count_, "an edge of an unknown node");
  arcs_.push_back({to.index(), 0});
  arcs_.push_back({from.index(), 0});
  capacities_.push_back(capacity);
  return FlowEdgeId(capacities_.size() - 1);
}

int64_t MaxFlow::Solve(FlowNodeId source_id, FlowNodeId sink_id) {
  uint32_t source = source_id.index();
  uint32_t sink = sink_id.index();
  HEDDLE_CHECK(source != sink, "a flow from a node to itself");
  int64_t finite = 0;
  for (int64_t capacity : capacities_) {
    if (capacity == kInfinite) continue;
    HEDDLE_CHECK(!__builtin_add_overflow(finite, capacity, &finite) && finite < int64_t{1} << 62,
                 "capacities of 2^62 and more");
  }
  IndexArcs();
  // Exceeds every possible flow, so a path that ends in finite edges never saturates it.
  for (size_t e = 0; e < capacities_.size(); ++e) {
    arcs_[2 * e].left = capacities_[e] == kInfinite ? finite + 1 : capacities_[e];
    arcs_[2 * e + 1].left = 0;
  }
  if (InfinitePath(source, sink)) return kInfinite;
  int64_t flow = 0;
  while (FindLevels(source, sink)) flow += FillLevels(source, sink);
  to_sink_ = ReachesSink(sink);
  return flow;
}

void MaxFlow::IndexArcs() {
  first_.assign(node_count_ + 1, 0);
  for (size_t a = 0; a < arcs_.size(); ++a) ++first_[arcs_[a ^ 1].to + 1];
  for (size_t n = 0; n < node_count_; ++n) first_[n + 1] += first_[n];
  by_node_.resize(arcs_.size());
  std::vector<uint32_t> at(first_.begin(), first_.end() - 1);
  for (uint32_t a = 0; a < arcs_.size(); ++a) by_node_[at[arcs_[a ^ 1].to]++] = a;
}

bool MaxFlow::InfinitePath(uint32_t source, uint32_t sink) const {
  std::vector<bool> seen(node_count_);
  std::vector<uint32_t> open{source};
  seen[source] = true;
  while (!open.empty()) {
    uint32_t node = open.back();
    open.pop_back();
    for (uint32_t i = first_[node]; i < first_[node + 1]; ++i) {
      uint32_t a = by_node_[i];
      if (a % 2 != 0 || capacities_[a / 2] != kInfinite || seen[arcs_[a].to]) continue;
      seen[arcs_[a].to] = true;
      open.push_back(arcs_[a].to);
    }
  }
  return seen[sink];
}

bool MaxFlow::FindLevels(uint32_t source, uint32_t sink) {
  level_.assign(node_count_, kUnreached);
  level_[source] = 0;
  std::vector<uint32_t> queue{source};
  for (size_t i = 0; i < queue.size() && level_[sink] == kUnreached; ++i) {
    uint32_t node = queue[i];
    for (uint32_t k = first_[node]; k < first_[node + 1]; ++k) {
      const Arc& arc = arcs_[by_node_[k]];
      if (arc.left == 0 || level_[arc.to] != kUnreached) continue;
      level_[arc.to] = level_[node] + 1;
      queue.push_back(arc.to);
    }
  }
  next_.assign(first_.begin(), first_.end() - 1);
  return level_[sink] != kUnreached;
}

// Extends the path by an arc to the next level. Returns false at a dead end.
bool MaxFlow::Advance(uint32_t node) {
  for (uint32_t& i = next_[node]; i < first_[node + 1]; ++i) {
    const Arc& arc = arcs_[by_node_[i]];
    if (arc.left == 0 || level_[arc.to] != level_[node] + 1) continue;
    path_.push_back(by_node_[i]);
    return true;
  }
  return false;
}

// Sends flow along paths of the level graph until every path is blocked.
int64_t MaxFlow::FillLevels(uint32_t source, uint32_t sink) {
  int64_t flow = 0;
  path_.clear();
  for (;;) {
    uint32_t node = path_.empty() ? source : arcs_[path_.back()].to;
    if (node == sink) {
      int64_t least = kInfinite;
      for (uint32_t a : path_) least = std::min(least, arcs_[a].left);
      for (uint32_t a : path_) {
        arcs_[a].left -= least;
        arcs_[a ^ 1].left += least;
      }
      flow += least;
      // Continue from the first saturated arc.
      auto full = std::ranges::find_if(path_, [&](uint32_t a) { return arcs_[a].left == 0; });
      path_.erase(full, path_.end());
    } else if (!Advance(node)) {
      if (path_.empty()) return flow;
      path_.pop_back();
      ++next_[path_.empty() ? source : arcs_[path_.back()].to];
    }
  }
}

std::vector<bool> MaxFlow::ReachesSink(uint32_t sink) const {
  std::vector<bool> seen(node_count_);
  std::vector<uint32_t> open{sink};
  seen[sink] = true;
  while (!open.empty()) {
    uint32_t node = open.back();
    open.pop_back();
    for (uint32_t i = first_[node]; i < first_[node + 1]; ++i) {
      uint32_t a = by_node_[i];
      if (arcs_[a ^ 1].left == 0 || seen[arcs_[a].to]) continue;
      seen[arcs_[a].to] = true;
      open.push_back(arcs_[a].to);
    }
  }
  return seen;
}

int64_t MaxFlow::Flow(FlowEdgeId edge) const { return arcs_[2 * edge.index() + 1].left; }

}  // namespace heddle
