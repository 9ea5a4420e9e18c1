// Nodes that the passes of this folder put into a graph.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/rewriter.h"

namespace heddle {

// Puts ops in front of one node, or right behind the one that makes a value; with the scope and the phase of that node.
class NodeInserter {
 public:
  NodeInserter(Graph& graph, Rewriter& rewriter, NodeId before)
      : graph_(graph), rewriter_(rewriter), at_(before) {}
  // At the beginning, for an input.
  static NodeInserter Behind(Graph& graph, Rewriter& rewriter, ValueId v) {
    NodeInserter inserter(graph, rewriter, graph[v].producer);
    inserter.behind_ = true;
    return inserter;
  }

  // The one result. Its name is made fresh.
  ValueId Add(OpId op, std::string_view name, const std::vector<ValueId>& operands,
              const Attrs& attrs, TypeId type, PlacementId placement = PlacementTable::kReplicated);

 private:
  Graph& graph_;
  Rewriter& rewriter_;
  NodeId at_;
  bool behind_ = false;
};

// Redistributions of a global graph; what several readers need is made once.
class RedistributionInserter {
 public:
  RedistributionInserter(Graph& graph, Rewriter& rewriter) : graph_(graph), rewriter_(rewriter) {}

  struct Purpose {
    Why why = Why::kTensor;
    std::string_view unit = {};
    // Of gradients.
    bool average = false;
    double scale = 1.0;
  };
  // `v` in the placement `target`, in front of the first node that asks for it.
  ValueId Before(NodeId reader, ValueId v, PlacementId target, const Purpose& purpose);
  // The same right behind the node that makes `v`, or at the beginning for an input.
  ValueId Behind(ValueId v, PlacementId target, const Purpose& purpose);

  // How many were inserted.
  int64_t count() const { return static_cast<int64_t>(known_.size()); }

 private:
  ValueId Make(NodeInserter at, ValueId v, PlacementId target, const Purpose& purpose);

  Graph& graph_;
  Rewriter& rewriter_;
  // A gradient that is averaged is another value than the same one that is not.
  struct Key {
    ValueId value;
    PlacementId target;
    Why why;
    std::string unit;
    bool average;
    double scale;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, ValueId> known_;
};

}  // namespace heddle
