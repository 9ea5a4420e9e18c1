// A lower bound by sequential tree-reweighted message passing (Kolmogorov 2006; for shared moves,
// 2015), and assignments rounded from its messages.
//
// Factors are edges and shared moves. Messages move costs between factors and variables; the cost
// of an assignment stays the same. A run visits the variables in order and back. Each visit evens
// out what the factors of a variable cost with each of its choices. The bound is the sum of the
// least costs of all factors, and never falls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/search/solve/engine/move_messages.h"
#include "heddle/search/solve/reduce/core.h"

namespace heddle::search {

// An assignment in the making.
struct Rounding {
  // For every variable of the core.
  std::vector<uint32_t> x;
  // Not if it takes a pair that is forbidden, or breaks a row that it should keep.
  bool possible = false;
};

// The messages to all moves, by choice of a variable. Problems with the same variables and moves
// may share them.
struct Message {
  uint32_t variable = 0;
  std::vector<double> about = {};
};
using Messages = std::vector<Message>;
Messages KeepChoices(Messages messages, const ChoiceSets& kept);

class Sweeps {
 public:
  // Rows count by a price for each unit of their amounts: above 0 for their upper bound, below 0
  // for their lower. Messages that do not fit the core are ignored.
  Sweeps(const Core& core, std::vector<double> prices, const Messages& known = {});
  Sweeps(const Sweeps&) = delete;
  Sweeps& operator=(const Sweeps&) = delete;

  // Forward and back. The bound afterwards, less what prices may make it wrong by. kForbidden if no
  // assignment is possible.
  double Run(bool rounds = true);
  double bound() const { return bound_; }
  // Work of the last run (limit.h).
  size_t work() const { return edge_work_ + move_work_; }

  const std::vector<double>& prices() const { return prices_; }
  // Messages stay. The bound is that of the next run.
  void SetPrices(std::vector<double> prices);

  // The least that a choice adds to `base()`, for each choice of each variable in turn. Known from
  // the second run after prices were set.
  std::span<const double> excess() const { return excess_; }
  double base() const { return base_; }

  // The rounding of the last run that rounds: each variable in turn takes its best choice, given
  // the choices of earlier variables and the messages of later ones.
  const Rounding& rounded() const { return rounded_; }
  // The same, but nothing is taken that leaves too little of a row for the rest. Not possible if
  // there are no rows.
  const Rounding& kept() const { return kept_; }

  // Moves what the messages say into the costs of the core that this was made for. This object is
  // of no use afterwards.
  void Absorb(Core& core) const;
  Messages MoveState() const;

 private:
  // An edge as seen from one of its ends.
  struct Half {
    uint32_t edge;
    uint32_t other;
    // Where the messages to this end, and to the other, begin.
    size_t in;
    size_t out;
    bool is_row;
  };
  struct MovePart {
    MoveMessages* move;
    size_t member;
  };
  struct Node {
    uint32_t variable;
    uint32_t size;
    // Where its choices begin.
    size_t first;
    std::vector<Half> earlier;
    std::vector<Half> later;
    std::vector<MovePart> parts;
    // The share of its costs that each factor gets: one by the number of chains through it.
    double share;
  };
  // The least and the most that a row may still come to.
  struct RowRange {
    double least = 0;
    double most = 0;
  };

  void AddNodes();
  void AddHalves();
  void AddParts();
  void SetShares();
  void Load(const Messages& known);
  void Gather(const Node& node);
  bool GatherParts(const Node& node);
  double Send(const Node& node, const Half& half);
  void SendToMoves(const Node& node, bool forward);
  void Round(const Node& node, Rounding& rounding, bool keep_rows);
  void ForbidOverruns(const Node& node);
  void CountChoice(const Node& node, uint32_t choice);

  const Core& core_;
  std::vector<double> prices_;
  std::vector<Node> nodes_;
  // Costs with prices, for each choice of each variable in turn.
  std::vector<double> cost_;
  // The messages to the ends of the remaining edges, edge by edge: a number for each choice of `u`,
  // then for each choice of `v`.
  std::vector<double> messages_;
  std::vector<MoveMessages> moves_;
  std::vector<double> excess_;
  double bound_ = -kForbidden;
  size_t edge_work_ = 0;
  size_t move_work_ = 0;
  double base_ = -kForbidden;
  // How much the rounding of priced amounts may add to a bound.
  double price_error_ = 0;
  // For the choices of one variable.
  std::vector<double> sum_;
  std::vector<double> scratch_;
  std::vector<double> said_;
  MoveMessages::Scratch move_scratch_;
  Rounding rounded_;
  Rounding kept_;
  std::vector<RowRange> whole_ranges_;
  std::vector<RowRange> ranges_;
};

}  // namespace heddle::search
