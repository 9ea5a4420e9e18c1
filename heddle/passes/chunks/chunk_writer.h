// ChunkWriter: a graph in which the nodes of a region run chunk by chunk.
//
//   %x! = comm.all_gather(%h, over=[tp])        becomes     %h.0 = aten.slice.Tensor(%h, start=0, end=512)
//   %x  = comm.wait(%x!)                                    %x.0! = comm.all_gather(%h.0, over=[tp])
//   %y  = aten.mm(%x, %w)                                   %x.0  = comm.wait(%x.0!)
//                                                           %y.0  = aten.mm(%x.0, %w)
//                                                           ... the same of chunk 1, and for whoever reads all of %y:
//                                                           %y   = rows of %y.0 and %y.1 as they were
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "heddle/passes/chunks/chunk_nodes.h"
#include "heddle/passes/chunks/chunk_region.h"

namespace heddle {

// A node that stands for another in one chunk, by the name of its first result.
struct ChunkCopy {
  std::string name;
  std::string original;
  int64_t chunk;
};

class ChunkWriter {
 public:
  // All outlive this.
  ChunkWriter(Graph& graph, const ChunkRegion& region, const CutRules& rules)
      : graph_(graph),
        region_(region),
        rules_(rules),
        rewriter_(graph),
        nodes_(graph, rewriter_),
        chunks_(static_cast<size_t>(rules.chunks())) {}

  // Ids of the graph are void then.
  void Run();

  const std::vector<ChunkCopy>& copies() const { return copies_; }
  // Copies that put chunks together or take them apart, by name; and views that bear the names of values that now are in chunks.
  const std::vector<std::string>& moves() const { return moves_; }
  const std::vector<std::string>& views() const { return views_; }

 private:
  void AddCopies(NodeId node);
  void AddWhole(NodeId node, size_t result);
  ValueId Operand(NodeId node, size_t operand, int64_t chunk);
  ValueId Slice(ValueId v, const Cut& cut, int64_t chunk);
  ValueId Join(ValueId v, const Cut& cut);
  // The split whose parts a node puts together again without moving anything, and that nobody else reads; or none.
  NodeId UndoneSplit(NodeId node, const std::vector<ValueId>& operands) const;
  void Drop(NodeId copy);
  ValueId View(NodeId before, ValueId v, const Dims& dims, std::string_view name);

  Graph& graph_;
  const ChunkRegion& region_;
  const CutRules& rules_;
  Rewriter rewriter_;
  ChunkNodes nodes_;
  // The node that is being replaced: new ones stand before it.
  NodeId at_;
  // By chunk and value: what stands for it.
  std::vector<std::unordered_map<uint32_t, ValueId>> chunks_;
  std::vector<ChunkCopy> copies_;
  std::vector<std::string> moves_;
  std::vector<std::string> views_;
};

}  // namespace heddle
