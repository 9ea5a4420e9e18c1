// Cuts: how a tensor is divided into chunks, and what that means for the nodes around it.
//
// What ranks gather lies in the result one rank behind the other. A chunk of it therefore has some rows of each rank: the dimension
// is so many blocks, and chunk c of n is the c-th n-th of each block. Which other tensors of a call are divided with one of them follows
// from the factors of its op; gathers, scatters, splits and concatenations along the divided dimension have rules of their own.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// How a value relates to one of the pieces that a region runs in.
struct Cut {
  enum class Kind : uint8_t {
    // One of the equal slices of the whole along a dimension.
    kRows,
    // Exists in this piece only, as its tokens sorted by expert: not a slice of anything, never
    // joined.
    kOwn,
    // The pieces add up to the whole, as counts and gradients of weights do.
    kSum,
  };
  uint32_t dim = 0;
  int64_t blocks = 1;
  Kind kind = Kind::kRows;
  bool operator==(const Cut&) const = default;
};

// By operand and result; none for values that are whole in every piece.
struct NodeCut {
  std::vector<std::optional<Cut>> operands;
  std::vector<std::optional<Cut>> results;
};

// Whether a node starts a collective that may be cut: one of tensor parallelism that moves rows alike.
bool IsCutStart(const Graph& graph, NodeId node);

class CutRules {
 public:
  // Both outlive this.
  CutRules(const Graph& graph, const Mesh& mesh, int64_t chunks)
      : graph_(graph), mesh_(mesh), chunks_(chunks), symbols_(graph.types().symbols()) {}

  int64_t chunks() const { return chunks_; }
  // How everything of the call is divided if this operand, or this result, is. Nothing where chunks of it make no sense.
  std::optional<NodeCut> FromOperand(NodeId node, size_t operand, const Cut& cut);
  std::optional<NodeCut> FromResult(NodeId node, size_t result, const Cut& cut);

  // The dimension that a call works along, counted from the first.
  int64_t DimAttr(NodeId node) const;

  // A chunk of a type, and the attributes of a call for chunks.
  Type ChunkType(const Type& type, const std::optional<Cut>& cut) const;
  Attrs ChunkAttrs(NodeId node, const NodeCut& cut) const;

  // Null where the op has none.
  const Factors* FactorsOf(NodeId node);
  // Whether the call takes chunks, and gives them.
  bool Holds(NodeId node, const NodeCut& cut);
  // No operand and no result is divided.
  NodeCut Empty(NodeId node) const;

 private:
  struct Seed {
    bool is_result;
    size_t index;
    Cut cut;
  };
  std::optional<NodeCut> From(NodeId node, const Seed& seed);
  std::optional<NodeCut> OfCollective(NodeId node, const Seed& seed) const;
  std::optional<NodeCut> OfFactors(NodeId node, const Seed& seed);
  // Where parts of one size stand one behind the other along a dimension, as in what ranks give: the whole is `part` or not.
  static std::optional<NodeCut> OfParts(const Seed& seed, bool seed_is_whole, int64_t parts,
                                        const NodeCut& shape);
  bool Divides(const Type& type, const Cut& cut) const;
  Type TypeOf(ValueId v) const;

  const Graph& graph_;
  const Mesh& mesh_;
  int64_t chunks_;
  // Shape rules may add symbols.
  SymbolTable symbols_;
  std::map<std::vector<uint32_t>, std::optional<Factors>> factors_;
};

}  // namespace heddle::compile
