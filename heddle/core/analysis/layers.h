// Layers: the positions in a model that pipeline stages may separate, and the part of a step that
// each node belongs to.
//
// Position 0 precedes the layers (embedding), positions 1 to `count` are layers (Blocks), and
// position count + 1 follows them (norm, output, loss). A node outside of layers gets its position
// from the data it reads.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// I and W of pipeline schedules: input gradients are everything that the gradient of an earlier
// position needs, and weight gradients the rest of backward.
enum class StepPart : uint8_t {
  kForward,
  kInputGradient,
  kWeightGradient,
  // Runs once per step, not per micro-batch: gathers and casts of weights, reductions of gradients,
  // the optimizer.
  kOnce
};

class Layers {
 public:
  // The position of nodes that depend on no parameter, such as a table of positions. Every stage
  // computes them.
  static constexpr int64_t kAnywhere = -1;

  explicit Layers(const Graph& graph);

  int64_t count() const { return count_; }
  // 0 to count() + 1, or kAnywhere. Without meaning for kOnce.
  int64_t position(NodeId node) const { return position_[node.index()]; }
  StepPart part(NodeId node) const { return part_[node.index()]; }
  // Bytes of the values that forward moves from positions up to `position` to later ones, and
  // backward in the other direction.
  Bytes forward_crossing(int64_t position) const { return At(forward_, position); }
  Bytes backward_crossing(int64_t position) const { return At(backward_, position); }
  // Bytes of forward that backward at positions `begin` to `end` - 1 reads, without weights and
  // values that every stage computes. Values of earlier positions are included: a stage keeps what
  // it receives.
  Bytes KeptBy(int64_t begin, int64_t end) const;

 private:
  static Bytes At(const std::vector<Bytes>& bytes, int64_t position) {
    return bytes[static_cast<size_t>(position)];
  }
  void FindParts(const Graph& graph);
  void FindPositions(const Graph& graph);
  int64_t PositionFromReads(const Graph& graph, NodeId node) const;
  bool IsTable(const Graph& graph, NodeId node) const;
  void FindInputGradients(const Graph& graph);
  void FindCrossings(const Graph& graph);
  void FindKept(const Graph& graph);
  // Whether a value goes from one position to a different one within one phase.
  bool Crosses(const Graph& graph, ValueId value, NodeId reader) const;

  int64_t count_ = 0;
  std::vector<int64_t> position_;
  std::vector<StepPart> part_;
  std::vector<bool> weight_;
  std::vector<Bytes> forward_;
  std::vector<Bytes> backward_;
  // Bytes that backward reads at a position, and before that at none after `previous`.
  struct Kept {
    int64_t position = 0;
    int64_t previous = 0;
    Bytes bytes;
  };
  std::vector<Kept> kept_;
};

}  // namespace heddle
