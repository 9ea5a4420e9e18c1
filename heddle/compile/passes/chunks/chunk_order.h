// OrderOfChunks: interleaves chunks, so that one computes while another communicates.
//
// Each chunk is a thread of nodes in graph order. All other compute is one more thread, which runs
// when no chunk can. The order follows a clock: among threads that need not wait, the next one is
// the thread that starts its next collective first. A few small kernels between two collectives of
// one chunk therefore interrupt the long kernels of another chunk. Nodes that depend only on
// parameters, and copies that join chunks, come right before their first reader. Copies also fill
// times when compute would be idle.
#pragma once

#include <vector>

#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::compile {

inline constexpr uint32_t kNoChunk = UINT32_MAX;

// Indexed by node: its chunk, or kNoChunk, and whether it may be anywhere before its readers.
struct ChunkThreads {
  uint32_t chunks = 0;
  std::vector<uint32_t> chunk_of;
  std::vector<bool> floats;
  // Floating nodes that may fill idle times.
  std::vector<bool> fills;
};

std::vector<NodeId> OrderOfChunks(const Graph& graph, const price::SimGraph& sim,
                                  const ChunkThreads& threads);

}  // namespace heddle::compile
