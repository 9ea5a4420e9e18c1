// ScheduleConstraints: the nodes of a graph that a schedule may move, and how far.
//
// Anchors are compute nodes in graph order; some may leave it. Followers are views, nodes that
// depend only on parameters, and nodes between a reduced gradient and its output: each runs right
// before its first reader. Starts and waits of collectives are placed between anchors. A collective
// may start after the anchors that it depends on (its release), and must be done before the first
// anchor that needs it (its deadline).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/compile/passes/overlap/order/overlap_options.h"
#include "heddle/core/ir/graph.h"
#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::compile {

class ScheduleConstraints {
 public:
  enum class Role : uint8_t { kAnchor, kFollower, kStart, kWait };
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Collective {
    uint32_t start;
    // None if nothing waits for it.
    uint32_t wait = kNone;
    uint32_t stream = 0;
    // A reduction of a gradient: no anchor needs it soon, and its wait frees memory.
    bool reduction = false;
    // Another collective reads its result, or a view of it.
    bool feeds = false;
    Nanos length = {};
    // Positions among anchors. It starts before anchor `release` at the earliest. Anchor `deadline`
    // needs it; kNone for the end.
    uint32_t release = 0;
    uint32_t deadline = kNone;
    // Memory that an early start keeps alive.
    Bytes held = {};
  };

  // `sim` must be that of `graph`. If all inputs that backward recomputes for a collective may
  // move, they follow the collective, which may then start at any earlier time.
  ScheduleConstraints(const Graph& graph, const price::SimGraph& sim, Freedom freedom);

  size_t node_count() const { return roles_.size(); }
  Role role(uint32_t node) const { return roles_[node]; }
  const std::vector<uint32_t>& anchors() const { return anchors_; }
  // The position of an anchor among anchors.
  uint32_t place(uint32_t anchor) const { return place_[anchor]; }
  const std::vector<Collective>& collectives() const { return collectives_; }
  // The collective of a start or wait.
  uint32_t collective_of(uint32_t node) const { return collective_of_[node]; }
  // Whether an anchor may run before earlier anchors.
  bool moves(uint32_t node) const { return moves_[node]; }
  // Whether an anchor only serves one gradient, so that it may run later.
  bool deferrable(uint32_t node) const { return deferrable_[node]; }

  // Direct predecessors and successors.
  std::span<const uint32_t> before(uint32_t node) const { return before_.of(node); }
  std::span<const uint32_t> after(uint32_t node) const { return after_.of(node); }

 private:
  struct Lists {
    std::vector<uint32_t> begin;
    std::vector<uint32_t> items;
    std::span<const uint32_t> of(uint32_t i) const {
      return {items.data() + begin[i], begin[i + 1] - begin[i]};
    }
  };
  void AddEdges(const Graph& graph);
  void AddRoles(const Graph& graph, const price::SimGraph& sim);
  // Indexed by node: backward nodes that derive from values of forward only, and lead to a
  // collective.
  std::vector<bool> FindMadeAgain(const Graph& graph) const;
  void AddCollectives(const Graph& graph, const price::SimGraph& sim);
  void AddWindows();
  void AddDeferrable(const Graph& graph);

  const Freedom freedom_;
  std::vector<bool> moves_;
  std::vector<Role> roles_;
  std::vector<uint32_t> anchors_;
  std::vector<uint32_t> place_;
  std::vector<Collective> collectives_;
  std::vector<uint32_t> collective_of_;
  std::vector<bool> deferrable_;
  Lists before_;
  Lists after_;
};

}  // namespace heddle::compile
