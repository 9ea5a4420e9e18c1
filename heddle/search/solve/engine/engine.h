// Branch and bound over the core of a problem.
//
// A frame is an open part of the problem. Reductions shrink it, and messages bound it. The search
// removes choices that no better answer uses, and joins variables. Most frames close that way; the
// others are split in two. Bounds count rows by their prices (Lagrange multipliers); answers must
// keep rows exactly.
//
// Messages bound shared moves, too (moves.cc). Reductions, joins and branches begin when so few
// choices are left that moves become edges.
#pragma once

#include <optional>
#include <vector>

#include "heddle/search/solve/engine/branch.h"
#include "heddle/search/solve/engine/sweeps.h"
#include "heddle/search/solve/reduce/core.h"
#include "heddle/search/solve/reduce/reduce.h"
#include "heddle/search/solve/reduce/work_limit.h"

namespace heddle::search {

struct SearchCounts {
  // The effects of the first reductions on the whole problem, and the remaining size.
  ReduceCounts reduced;
  ProblemSize left;
  // Totals over all frames.
  size_t sweeps = 0;
  size_t joins = 0;
  size_t branches = 0;
};

struct SolveOptions {
  WorkLimit limit = {};
  // Initial assignments; infeasible ones are ignored. The answer is never worse than the best of
  // them.
  std::vector<std::vector<uint32_t>> starts = {};
  // Allows joins. Without them, branches do all the work that bounds leave.
  bool join = true;

  // For problems with moves: stop when the bound is within this share of the best answer.
  double gap = 0;
  // Initial messages, from a problem with the same variables and moves. If empty, receives those of
  // this problem.
  Messages* messages = nullptr;
  // Receives the choices of which an answer may cost little more than the best: the nearest ones
  // with about `near_entries` pairs, or all.
  ChoiceSets* near = nullptr;
  size_t near_entries = size_t{1} << 20;
  // Uses pairs instead of messages for moves whose copies have at most this number of matrix
  // entries.
  size_t few_entries = size_t{1} << 18;
};

class Search {
 public:
  explicit Search(const PairwiseProblem& problem, const SolveOptions& options = {});

  // Runs to the end, or until the limit is spent or frames use too much memory.
  void Run();

  // Whether no part of the problem is open.
  bool finished() const { return frames_.empty(); }
  // The best assignment so far. Its cost is infinite if there is none.
  const std::vector<uint32_t>& best() const { return best_; }
  double best_cost() const { return best_cost_; }
  // A lower bound of all answers; infinite if there is none.
  double bound() const { return bound_; }
  // Costs that differ by less than this count as equal.
  double Tolerance(double cost) const;
  const SearchCounts& counts() const { return counts_; }

 private:
  struct Frame {
    Core core;
    // The variables' indices in the frame below; empty in the lowest frame.
    std::vector<uint32_t> from;
    std::vector<double> prices;
    double bound = -kForbidden;
    std::optional<Branch> branch;
  };

  // `scale` bounds the sum of the largest costs.
  Search(const PairwiseProblem& problem, const SolveOptions& options, double scale);

  double Cutoff() const { return best_cost_ - Tolerance(best_cost_); }
  bool Stopped() const { return stopped_ || options_.limit.Spent(); }

  // Removes choices that cost too much for an answer better than the first one. Returns false if no
  // such answer exists.
  bool RemoveDear(Core& core);
  // Runs the first reductions. Returns false if no better answer is left.
  bool ReduceFirst(Core& core);

  // The following functions return whether the frame is closed: it has no answer better than the
  // best.
  bool Close(Frame& frame);
  bool RunSweeps(Frame& frame, Sweeps& sweeps, int most);
  bool Step(Frame& frame, Sweeps& sweeps, bool rounds);

  // --- moves.cc: a frame with moves, until it is closed or has no moves left.
  bool CloseMoves(Frame& frame);
  // Offers answers. Returns whether another method is now better than further sweeps.
  bool LookAtMoves(const Core& core, const Sweeps& sweeps, int run);
  bool CanRemove(const Core& core, const Sweeps& sweeps) const;
  // Offers the best answer with choices near the bound. Returns whether it is better than the best.
  bool Dive(const Core& core, const Sweeps& sweeps, size_t most_pairs);
  // Offers the best answer with these choices of the problem. Returns false if they have more pairs
  // than `most_pairs`, and many copies.
  bool SolveAmong(const ChoiceSets& choices, size_t most_pairs);
  // Searches for any answer. Returns true if none exists.
  bool IsInfeasible();
  void Note(const Core& core, const Sweeps& sweeps);
  ChoiceSets NearChoices() const;

  // --- prices.cc: finds prices of rows that maximize the bound. Returns whether the frame was
  // closed.
  bool FindPrices(Frame& frame, Sweeps& sweeps);
  bool FindPriceOf(uint32_t row, Frame& frame, Sweeps& sweeps);
  bool FindAllPrices(Frame& frame, Sweeps& sweeps);
  bool SetBestPrices(Frame& frame, Sweeps& sweeps, const std::vector<double>& prices);

  // Takes an assignment of the last frame's core, or of the problem, if it is better than the best.
  void Offer(std::vector<uint32_t> x);
  void Take(std::vector<uint32_t> x);
  // The same for assignments derived from others.
  void OfferMix(const Core& core, const std::vector<uint32_t>& kept,
                const std::vector<uint32_t>& other);
  void OfferRepaired(const Core& core, const Sweeps& sweeps);
  void OfferPolished(const Core& core, const Sweeps& sweeps);
  void OfferGreedy(const Core& core);
  void OpenBranch();
  bool JoinSome(Core& core);

  const PairwiseProblem& problem_;
  SolveOptions options_;
  // The sum of the largest costs, for estimating rounding errors.
  double scale_ = 0;
  std::vector<Frame> frames_;
  // Set if frames or pairs use too much memory, or the gap is small enough.
  bool stopped_ = false;
  std::vector<uint32_t> best_;
  double best_cost_ = kForbidden;
  double bound_ = -kForbidden;
  SearchCounts counts_;
  // By variable of a problem with moves: choices that restrictions allow, choices that sweeps
  // suggested, and by choice the minimum cost of an assignment with it. Then the bound of sweeps
  // over moves.
  ChoiceSets allowed_;
  ChoiceSets suggested_;
  std::vector<std::vector<double>> at_least_;
  double moves_bound_ = -kForbidden;
};

}  // namespace heddle::search
