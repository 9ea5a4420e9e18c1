// Communicators: who takes part in the collectives of a graph.
//
// A communicator is a list of axes and a stream: collectives over the same axes on different streams have communicators of their own
// and do not wait for each other. On one communicator launches keep the order of the graph, on every rank.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::run {

using CommunicatorId = Id<struct CommunicatorTag>;

struct Communicator {
  Axes over;
  uint8_t stream = 0;
  // The groups of ranks that work together, each in the order of `over`.
  std::vector<std::vector<int64_t>> groups;

  // The group of a rank.
  const std::vector<int64_t>& GroupOf(int64_t rank) const;
};

// Those of a graph, in the order in which they first occur: the same on every rank.
class Communicators {
 public:
  Communicators(const Mesh& mesh, const Graph& graph);

  const Table<CommunicatorId, Communicator>& all() const { return all_; }
  const Communicator& operator[](CommunicatorId id) const { return all_[id]; }
  // Of a node that starts a collective; none for others.
  CommunicatorId of(NodeId node) const { return of_[node]; }

 private:
  Table<CommunicatorId, Communicator> all_;
  Table<NodeId, CommunicatorId> of_;
};

// `[dp,tp]`, `[dp] stream 1`
std::string Format(const Mesh& mesh, const Communicator& communicator);

}  // namespace heddle::run
