// A lower bound for problems with shared moves, and assignments that it suggests: sequential reweighted message passing (Kolmogorov 2006 and
// 2015), as `Sweeps` (solve/search/sweeps.h) does for pairs, with messages of whole moves (move_messages.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "heddle/auto/shared/move_messages.h"
#include "heddle/auto/shared/shared_moves.h"

namespace heddle {

// What decisions have said about their choices, for problems with the same decisions and moves.
struct SharedMessage {
  uint32_t decision = 0;
  std::vector<double> about = {};
};
using SharedMessages = std::vector<SharedMessage>;
SharedMessages KeepChoices(SharedMessages messages, const KeptOf& kept);

class SharedSweeps {
 public:
  // The problem outlives this. Messages of another problem that do not suit it are passed over.
  explicit SharedSweeps(const AutoProblem& problem, const SharedMessages& known = {});
  SharedSweeps(SharedSweeps&&) = default;
  SharedSweeps& operator=(SharedSweeps&&) = delete;

  // Forward and back. The bound afterwards, which never falls but with another price; kForbidden if no assignment is possible.
  double Run(bool suggests);
  double bound() const { return bound_; }
  // Entries of prices that were read since the last time this was asked for.
  size_t TakeWork() { return std::exchange(scratch_.work, 0); }

  // For each unit beyond the upper bound of the only budget.
  double price() const { return price_; }
  void SetPrice(double price);

  // By decision and choice: what an assignment with it costs at least. From the second run on, after a price was set, too.
  std::vector<std::vector<double>> AtLeast() const;
  // Of the last run that was asked for it: each decision in turn takes what is best with what earlier ones took and later ones say. Not
  // always possible.
  const std::vector<uint32_t>& suggested() const { return suggested_; }

  SharedMessages Messages() const;

 private:
  // Where a decision takes part.
  struct Part {
    MoveMessages* move;
    size_t member;
  };
  struct Node {
    std::vector<Part> parts;
    // With what it takes of the budget.
    std::vector<double> cost;
    std::vector<double> excess;
    // Of what it knows, what it tells each move.
    double share = 1;
  };

  void Load(const SharedMessages& known);
  void Suggest(uint32_t decision);
  void Visit(uint32_t decision, bool forward);
  void Say(const Part& part, double share);

  const AutoProblem& problem_;
  std::vector<MoveMessages> moves_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> suggested_;
  double price_ = 0;
  double bound_ = -kForbidden;
  // Of the run before, which `excess` adds to.
  double base_ = -kForbidden;
  // Of this run, so far.
  double sum_of_least_ = 0;
  // For the choices of one decision, and for its places in one move.
  std::vector<double> sum_;
  std::vector<double> said_;
  MoveMessages::Scratch scratch_;
};

}  // namespace heddle
