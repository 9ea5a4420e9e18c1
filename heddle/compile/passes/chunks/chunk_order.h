// OrderOfChunks: chunks run in turns, so that one computes while another communicates.
//
// Every chunk is a thread of nodes in the order of the graph; all else that computes is one more, and waits until no chunk can run. A clock
// goes through them: of the threads that need not wait, the one runs that starts its next collective first. So a few small kernels between two
// collectives of one chunk cut in on the long ones of another. What depends on parameters alone, and copies that put
// chunks together, stand before the first that needs them; copies also where compute would stand still.
#pragma once

#include <vector>

#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::compile {

inline constexpr uint32_t kNoChunk = UINT32_MAX;

// By node: its chunk, or kNoChunk; and whether it may stand anywhere before its readers.
struct ChunkThreads {
  uint32_t chunks = 0;
  std::vector<uint32_t> chunk_of;
  std::vector<bool> floats;
  // Of those that float, what fills gaps.
  std::vector<bool> fills;
};

std::vector<NodeId> OrderOfChunks(const Graph& graph, const price::SimGraph& sim,
                                  const ChunkThreads& threads);

}  // namespace heddle::compile
