// Cuts: how a tensor is divided into chunks, and the effect on neighbouring nodes.
//
// A gathered tensor has the parts of all ranks one after the other. A chunk of it has some rows of
// each rank: the dimension consists of equal blocks, and chunk c of n is the c-th n-th of each
// block. The factors of an op determine how the other tensors of a call are divided. Gathers,
// scatters, splits and concatenations along the divided dimension have rules of their own.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// The relation of a value to one of the pieces in which a region runs.
struct Cut {
  enum class Kind : uint8_t {
    // One of the equal slices of the whole along a dimension.
    kRows,
    // Exists in this piece only, as its tokens sorted by expert: not a slice of anything, never
    // joined.
    kOwn,
    // The pieces sum to the whole, for example counts and gradients of weights.
    kSum,
  };
  uint32_t dim = 0;
  int64_t blocks = 1;
  Kind kind = Kind::kRows;
  bool operator==(const Cut&) const = default;
};

// Per operand and result; nullopt for values that are whole in every piece.
struct NodeCut {
  std::vector<std::optional<Cut>> operands;
  std::vector<std::optional<Cut>> results;
};

// Whether a node starts a collective that can be cut: a tensor-parallel one that treats all rows
// the same.
bool IsCutStart(const Graph& graph, NodeId node);

class CutRules {
 public:
  // Both must outlive this.
  CutRules(const Graph& graph, const Mesh& mesh, int64_t chunks)
      : graph_(graph), mesh_(mesh), chunks_(chunks), symbols_(graph.types().symbols()) {}

  int64_t chunks() const { return chunks_; }
  // The cuts of all tensors of the call if this operand, or result, is cut. Nullopt if the call
  // cannot run on chunks.
  std::optional<NodeCut> FromOperand(NodeId node, size_t operand, const Cut& cut);
  std::optional<NodeCut> FromResult(NodeId node, size_t result, const Cut& cut);

  // The dimension that a call works along, as a non-negative index.
  int64_t DimAttr(NodeId node) const;

  // The type of a chunk, and the attributes of a call on chunks.
  Type ChunkType(const Type& type, const std::optional<Cut>& cut) const;
  Attrs ChunkAttrs(NodeId node, const NodeCut& cut) const;

  // Null if the op has none.
  const Factors* FactorsOf(NodeId node);
  // Whether the call accepts chunks and produces chunks.
  bool Holds(NodeId node, const NodeCut& cut);
  // A NodeCut in which no tensor is cut.
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
  // For parts of equal size along a dimension, such as results of a gather: the whole is tensor
  // `part` or not.
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
