// LossRegion: the nodes of a step whose values have a row for each token and a column for each class.
// They run for some rows after the others: forward before the loss, backward before its first node.
// In pieces all values have two dimensions.
//
// From the product that makes the scores to the sum that is the loss, and in backward from there to the products that make gradients of what
// the scores were made of. Nothing else reads these values, so they can be made row by row.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/passes/chunks/cut_region.h"

namespace heddle::compile {

class LossRegion : public CutRegion {
 public:
  // `loss` is a nll_loss_forward. A piece has `rows_of_piece` rows, the last one maybe fewer; `rules`
  // has the number of pieces. All references outlive this.
  LossRegion(const Graph& graph, const Uses& uses, CutRules& rules, NodeId loss,
             int64_t rows_of_piece);

  // Why it cannot be made row by row; empty if it can.
  const std::string& why_not() const { return why_not_; }
  // In their order.
  const std::vector<NodeId>& backward() const { return backward_; }

  Attrs AttrsOf(NodeId node, int64_t piece) const override;
  std::vector<Stage> Stages() const override;
  Rows RowsOf(int64_t rows, int64_t piece) const override;
  bool IsShape(NodeId node) const override { return part_[node.index()] == Part::kShape; }
  Keep KeepOf(ValueId v) const override;

 private:
  enum class Part : uint8_t {
    kNone,
    // Rows in, rows out.
    kRows,
    // Shows what it is given in another shape.
    kShape,
    // The other way round: a column for each row.
    kTurned,
    // The product that makes the scores.
    kScores,
    // A sum over rows: the loss, or the gradient of a weight.
    kSum,
    // A product that makes rows of something else.
    kOut,
  };

  bool Sums(NodeId node) const;
  bool Accepts(NodeId loss);
  void FindForward(NodeId loss);
  void FindBackward();
  // Of a node that makes, or reads, rows of classes. kNone if it is not among those that go row by row.
  Part PartOf(NodeId node) const;
  Part PartOfProduct(NodeId node) const;
  bool HasRows(ValueId v) const;
  bool AlongColumns(NodeId node) const;
  bool KeepsColumns(NodeId node) const;
  bool ReadsWide(NodeId node) const;
  void Add(NodeId node, Part part);
  void CheckReaders();
  void SetCuts(NodeId node);
  void Refuse(NodeId node, std::string_view why);

  int64_t rows_of_piece_;
  int64_t rows_ = 0;
  std::string why_not_;
  // By node; by value.
  std::vector<Part> part_;
  std::vector<bool> wide_;
  std::vector<bool> turned_;
  std::vector<NodeId> forward_;
  std::vector<NodeId> backward_;
};

}  // namespace heddle::compile
