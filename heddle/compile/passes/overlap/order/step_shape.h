// StepShape: what of a graph a schedule may move, and how far.
//
// Anchors are nodes that compute, in their order; some may leave it. Followers are views, what is made of parameters alone, and what brings a
// reduced gradient to its output: each stands right before whoever needs it. Starts and waits of collectives are placed
// between anchors. A collective may start once the anchors that it depends on have run (its release), and an anchor needs it
// (its deadline).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/compile/passes/overlap/order/overlap_options.h"
#include "heddle/core/ir/graph.h"
#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::compile {

class StepShape {
 public:
  enum class Role : uint8_t { kAnchor, kFollower, kStart, kWait };
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Collective {
    uint32_t start;
    // None if nothing waits for it.
    uint32_t wait = kNone;
    uint32_t stream = 0;
    // Brings a gradient to where it is kept: nothing in the step needs it soon, and it lets go of memory.
    bool reduction = false;
    // Another collective is given what it gives, or a view of it.
    bool feeds = false;
    Nanos length = {};
    // Places among anchors: it may start before this one at the earliest; this one needs it, or kNone for the end.
    uint32_t release = 0;
    uint32_t deadline = kNone;
    // What starting early keeps alive.
    Bytes held = {};
  };

  // `sim` is of `graph`. What backward makes again for a collective follows it, too, if all of it may move: the collective may
  // then start at any time before.
  StepShape(const Graph& graph, const price::SimGraph& sim, Freedom freedom);

  size_t node_count() const { return roles_.size(); }
  Role role(uint32_t node) const { return roles_[node]; }
  const std::vector<uint32_t>& anchors() const { return anchors_; }
  // By node: its place among anchors, for anchors.
  uint32_t place(uint32_t anchor) const { return place_[anchor]; }
  const std::vector<Collective>& collectives() const { return collectives_; }
  // By node, for starts and waits.
  uint32_t collective_of(uint32_t node) const { return collective_of_[node]; }
  // An anchor that may run earlier than others that stand before it.
  bool moves(uint32_t node) const { return moves_[node]; }
  // An anchor that does nothing but make one gradient: it may run later.
  bool deferrable(uint32_t node) const { return deferrable_[node]; }

  // Nodes that must come before, and after.
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
  // By node of backward: made of what forward left alone, and for a collective.
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
