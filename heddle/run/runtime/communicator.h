// Communicators: the groups of ranks that take part in the collectives of a graph.
//
// A communicator is a list of axes and a stream. Collectives over the same axes on different
// streams have different communicators and do not wait for each other. On one communicator, every
// rank launches in the order of the graph.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::run {

using CommunicatorId = Id<struct CommunicatorTag>;

struct Communicator {
  Axes over;
  uint8_t stream = 0;
  // Groups of ranks, each in the order of `over`.
  std::vector<std::vector<int64_t>> groups;

  // Returns the group of a rank.
  const std::vector<int64_t>& GroupOf(int64_t rank) const;
};

// The communicators of a graph, in the order of their first collectives; the same on every rank.
class Communicators {
 public:
  Communicators(const Mesh& mesh, const Graph& graph);

  const Table<CommunicatorId, Communicator>& all() const { return all_; }
  const Communicator& operator[](CommunicatorId id) const { return all_[id]; }
  // Returns the communicator of a node that starts a collective; an invalid id for other nodes.
  CommunicatorId of(NodeId node) const { return of_[node]; }

 private:
  Table<CommunicatorId, Communicator> all_;
  Table<NodeId, CommunicatorId> of_;
};

// Formats a communicator as `[dp,tp]` or `[dp] stream 1`.
std::string Format(const Mesh& mesh, const Communicator& communicator);

}  // namespace heddle::run
