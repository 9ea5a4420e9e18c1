// Transfers: the sends and receives between the programs of a pipeline's coordinates.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// Fails unless the coordinates agree on their transfers and cannot deadlock. The message of a
// deadlock has the cycle.
//
// Transfers of one edge, from one coordinate to another, complete in the order in which both ends
// launch them. They must agree in number, tags and types. A launch does not block. The wait of a
// receive blocks until the other end has launched the send, and the wait of a send until the other
// end has launched the receive. A module whose ranks share a program passes.
Status CheckTransfers(const Module& module);

// The graphs and nodes of the two ends of a transfer.
struct TransferEnds {
  size_t from = 0;
  NodeId send;
  size_t to = 0;
  NodeId receive;
};
// All transfers of a module that passes CheckTransfers.
std::vector<TransferEnds> FindTransfers(const Module& module);

}  // namespace heddle
