// Inserter: puts the nodes of these passes into a graph, single ops and redistributions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "heddle/ir/edit/rewriter.h"

namespace heddle {

class Inserter {
 public:
  Inserter(Graph& graph, Rewriter& rewriter) : graph_(graph), rewriter_(rewriter) {}

  // Where a node goes. It has the scope and the phase of the node beside it.
  struct Place {
    NodeId node;
    bool behind = false;
  };
  static Place Before(NodeId node) { return {node, false}; }
  // Right behind the node that makes `v`, or at the beginning for an input.
  Place Behind(ValueId v) const { return {graph_[v].producer, true}; }

  // The one result. Its name is made fresh.
  ValueId Add(Place at, OpId op, std::string_view name, const std::vector<ValueId>& operands,
              const Attrs& attrs, TypeId type, PlacementId placement = PlacementTable::kReplicated);

  // What a redistribution is for, and what its reductions do.
  struct Purpose {
    Why why = Why::kTensor;
    std::string unit = {};
    bool average = false;
    double scale = 1.0;
    auto operator<=>(const Purpose&) const = default;
  };
  // `v` in the placement `target`. What several readers need for one purpose is made once, where it was asked for first.
  ValueId Redistribute(Place at, ValueId v, PlacementId target, const Purpose& purpose);
  // Takes note of a redistribution that is there already, or replaces it by an equal one from before.
  void Learn(NodeId redistribution);
  // How many redistributions were made.
  int64_t redistributions() const { return redistributions_; }

 private:
  Graph& graph_;
  Rewriter& rewriter_;
  std::map<std::tuple<ValueId, PlacementId, Purpose>, ValueId> known_;
  int64_t redistributions_ = 0;
};

}  // namespace heddle
