// Branch and bound over the core of a problem.
//
// A frame is an open part of the problem. Reductions shrink it, messages bound it, choices that no
// better answer takes are removed, and variables are joined. Most frames close that way; the others
// are cut in two. Rows count by their prices (Lagrange multipliers) in
// bounds, and as they are in answers.
//
// Shared moves (moves.cc) are bounded by messages, too. Reductions, joins and branches begin when
// so few choices are left that moves become edges.
#pragma once

#include <optional>
#include <vector>

#include "heddle/search/solve/engine/branch.h"
#include "heddle/search/solve/engine/sweeps.h"
#include "heddle/search/solve/reduce/core.h"
#include "heddle/search/solve/reduce/limit.h"
#include "heddle/search/solve/reduce/reduce.h"

namespace heddle::search {

struct SearchCounts {
  // Of the whole problem: what the first reductions did, and what they left.
  ReduceCounts reduced;
  ProblemSize left;
  // Over all frames.
  size_t sweeps = 0;
  size_t joins = 0;
  size_t branches = 0;
};

struct SolveOptions {
  Limit limit = {};
  // Assignments to begin with. The answer is never worse. Impossible ones are ignored.
  std::vector<std::vector<uint32_t>> starts = {};
  // Without joins, branches do all that bounds leave open.
  bool join = true;

  // For problems with moves.
  // Stop when the bound is within this share of the best answer.
  double gap = 0;
  // Messages of a problem with the same variables and moves, to begin with. If empty, gets those of
  // this problem.
  Messages* messages = nullptr;
  // Gets the choices with which an answer may cost little more than the best: the nearest that make
  // about `near_entries` pairs, or all.
  ChoiceSets* near = nullptr;
  size_t near_entries = size_t{1} << 20;
  // Pairs instead of messages for moves whose copies have at most this number of matrix entries.
  size_t few_entries = size_t{1} << 18;
};

class Search {
 public:
  explicit Search(const PairwiseProblem& problem, const SolveOptions& options = {});

  // To the end, or until the limit is spent or memory for frames is used up.
  void Run();

  // Whether nothing is left open.
  bool finished() const { return frames_.empty(); }
  // The best assignment that was found; its cost is infinite if there is none.
  const std::vector<uint32_t>& best() const { return best_; }
  double best_cost() const { return best_cost_; }
  // No answer costs less. Infinite if there is none.
  double bound() const { return bound_; }
  // What counts as equal, next to a cost.
  double Tolerance(double cost) const;
  const SearchCounts& counts() const { return counts_; }

 private:
  struct Frame {
    Core core;
    // Which its variables were in the frame below; nothing in the lowest.
    std::vector<uint32_t> from;
    std::vector<double> prices;
    double bound = -kForbidden;
    std::optional<Branch> branch;
  };

  // `scale` bounds the sum of the largest costs.
  Search(const PairwiseProblem& problem, const SolveOptions& options, double scale);

  double Cutoff() const { return best_cost_ - Tolerance(best_cost_); }
  bool Stopped() const { return stopped_ || options_.limit.Spent(); }

  // Removes choices that cost too much for an answer better than the first one. False if no such
  // answer exists.
  bool RemoveDear(Core& core);
  // The first reductions. False if no better answer is left.
  bool ReduceFirst(Core& core);

  // These return whether the frame is closed: it holds no answer that is better than the best.
  bool Close(Frame& frame);
  bool RunSweeps(Frame& frame, Sweeps& sweeps, int most);
  bool Step(Frame& frame, Sweeps& sweeps, bool rounds);

  // --- moves.cc: a frame with moves, until it is closed or has no moves left.
  bool CloseMoves(Frame& frame);
  // Offers answers, and says whether more sweeps are not the best way to go on.
  bool LookAtMoves(const Core& core, const Sweeps& sweeps, int run);
  bool CanRemove(const Core& core, const Sweeps& sweeps) const;
  // Offers the best answer with choices near the bound. Whether it is better than the best.
  bool Dive(const Core& core, const Sweeps& sweeps, size_t most_pairs);
  // Offers the best answer with these choices of the problem. False if they have more pairs than
  // that, and many copies.
  bool SolveAmong(const ChoiceSets& choices, size_t most_pairs);
  // Looks for any answer. True if no answer exists.
  bool IsInfeasible();
  void Note(const Core& core, const Sweeps& sweeps);
  ChoiceSets NearChoices() const;

  // --- prices.cc: prices for the rows that make the bound large. They return whether the frame is
  // closed on the way.
  bool FindPrices(Frame& frame, Sweeps& sweeps);
  bool FindPriceOf(uint32_t row, Frame& frame, Sweeps& sweeps);
  bool FindAllPrices(Frame& frame, Sweeps& sweeps);
  bool SetBestPrices(Frame& frame, Sweeps& sweeps, const std::vector<double>& prices);

  // Takes an assignment of the last frame's core, or of the problem itself, if it is better than
  // the best.
  void Offer(std::vector<uint32_t> x);
  void Take(std::vector<uint32_t> x);
  // The same for what can be made of others.
  void OfferMix(const Core& core, const std::vector<uint32_t>& kept,
                const std::vector<uint32_t>& other);
  void OfferRepaired(const Core& core, const Sweeps& sweeps);
  void OfferPolished(const Core& core, const Sweeps& sweeps);
  void OfferGreedy(const Core& core);
  void OpenBranch();
  bool JoinSome(Core& core);

  const PairwiseProblem& problem_;
  SolveOptions options_;
  // The sum of the largest costs, for the size of rounding errors.
  double scale_ = 0;
  std::vector<Frame> frames_;
  // Frames or pairs take too much memory, or the gap is small enough.
  bool stopped_ = false;
  std::vector<uint32_t> best_;
  double best_cost_ = kForbidden;
  double bound_ = -kForbidden;
  SearchCounts counts_;
  // By variable of a problem with moves: choices that restrictions allow, choices that sweeps
  // suggested, and by choice the least cost of an assignment with it. The bound of sweeps over
  // moves.
  ChoiceSets allowed_;
  ChoiceSets suggested_;
  std::vector<std::vector<double>> at_least_;
  double moves_bound_ = -kForbidden;
};

}  // namespace heddle::search
