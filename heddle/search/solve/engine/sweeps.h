// A lower bound by sequential tree-reweighted message passing (Kolmogorov 2006; for shared moves,
// 2015), and assignments rounded from its messages.
//
// Factors are edges and shared moves. Messages move costs between factors and variables; the cost
// of an assignment stays the same. A run visits the variables in order and back. Each visit
// averages the costs that the factors of a variable have for each of its choices. The bound is the
// sum of the minimum costs of all factors, and never falls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/search/solve/engine/move_messages.h"
#include "heddle/search/solve/reduce/core.h"

namespace heddle::search {

// A partial or complete assignment.
struct Rounding {
  // For every variable of the core.
  std::vector<uint32_t> x;
  // False if it uses a forbidden pair, or breaks a row that it must keep.
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

  // Runs forward and back. Returns the bound, minus the possible error from prices; kForbidden if
  // no assignment is feasible.
  double Run(bool rounds = true);
  double bound() const { return bound_; }
  // Work of the last run (work_limit.h).
  size_t work() const { return edge_work_ + move_work_; }

  const std::vector<double>& prices() const { return prices_; }
  // Keeps the messages. The bound is updated by the next run.
  void SetPrices(std::vector<double> prices);

  // The minimum that a choice adds to `base()`, for each choice of each variable in turn. Known
  // from the second run after prices were set.
  std::span<const double> excess() const { return excess_; }
  double base() const { return base_; }

  // The rounding of the last run that rounds: each variable in turn takes its best choice, given
  // the choices of earlier variables and the messages of later ones.
  const Rounding& rounded() const { return rounded_; }
  // The same, but without choices that leave too little of a row for the rest. Not feasible if
  // there are no rows.
  const Rounding& kept() const { return kept_; }

  // Moves the messages into the costs of the core that this was made for. Do not use this object
  // afterwards.
  void Absorb(Core& core) const;
  Messages MoveState() const;

 private:
  // An edge as seen from one of its ends.
  struct Half {
    uint32_t edge;
    uint32_t other;
    // Offsets of the messages to this end, and to the other.
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
    // Offset of its choices.
    size_t first;
    std::vector<Half> earlier;
    std::vector<Half> later;
    std::vector<MovePart> parts;
    // The share of its costs that each factor gets: 1 / the number of chains through it.
    double share;
  };
  // The minimum and maximum that a row can still reach.
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
  // Upper bound of the rounding error of priced amounts in a bound.
  double price_error_ = 0;
  // For the choices of one variable.
  std::vector<double> sum_;
  std::vector<double> scratch_;
  std::vector<double> message_;
  MoveMessages::Scratch move_scratch_;
  Rounding rounded_;
  Rounding kept_;
  std::vector<RowRange> whole_ranges_;
  std::vector<RowRange> ranges_;
};

}  // namespace heddle::search
