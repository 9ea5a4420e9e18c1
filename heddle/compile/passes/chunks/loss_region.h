// LossRegion: the nodes whose values have a row for each token and a column for each class. They
// run for some rows at a time: in forward before the loss, in backward before its first node.
// Pieces have two dimensions.
//
// The region reaches from the product that computes the scores to the sum that is the loss. In
// backward it continues to the products that compute the gradients of the scores' inputs. No other
// node reads these values, so they can be computed row by row.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/passes/chunks/cut_region.h"

namespace heddle::compile {

class LossRegion : public CutRegion {
 public:
  // `loss` is a nll_loss_forward. A piece has `rows_of_piece` rows, the last one possibly fewer.
  // `rules` has the number of pieces. All references must outlive this.
  LossRegion(const Graph& graph, const Uses& uses, CutRules& rules, NodeId loss,
             int64_t rows_of_piece);

  // The reason if it cannot be computed row by row; otherwise empty.
  const std::string& why_not() const { return why_not_; }
  // In execution order.
  const std::vector<NodeId>& backward() const { return backward_; }

  Attrs AttrsOf(NodeId node, int64_t piece) const override;
  std::vector<Stage> Stages() const override;
  Rows RowsOf(int64_t rows, int64_t piece) const override;
  bool IsShape(NodeId node) const override { return part_[node.index()] == Part::kShape; }
  Keep KeepOf(ValueId v) const override;

 private:
  enum class Part : uint8_t {
    kNone,
    // Maps rows to rows.
    kRows,
    // Reshapes its operand.
    kShape,
    // Transposed: a column for each row.
    kTurned,
    // The product that computes the scores.
    kScores,
    // A sum over rows: the loss, or the gradient of a weight.
    kSum,
    // A product that computes rows of other columns.
    kOut,
  };

  bool Sums(NodeId node) const;
  bool Accepts(NodeId loss);
  void FindForward(NodeId loss);
  void FindBackward();
  // The part of a node that produces or reads rows of classes; kNone if the region cannot contain
  // it.
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
  // Indexed by node, and by value.
  std::vector<Part> part_;
  std::vector<bool> wide_;
  std::vector<bool> turned_;
  std::vector<NodeId> forward_;
  std::vector<NodeId> backward_;
};

}  // namespace heddle::compile
