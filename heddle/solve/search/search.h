// Branch and bound over the core of a problem.
//
// A frame is a part of the problem that is still open. It is reduced, bounded by messages, rid of choices that are too dear for
// any better answer, and its variables are joined; most frames close that way. One that does not is cut in two. Rows count by
// their prices (Lagrange multipliers) in bounds, and as they are in answers.
#pragma once

#include <optional>
#include <vector>

#include "heddle/solve/reduce/core.h"
#include "heddle/solve/reduce/limit.h"
#include "heddle/solve/reduce/reduce.h"
#include "heddle/solve/search/branch.h"
#include "heddle/solve/search/sweeps.h"

namespace heddle {

struct SearchCounts {
  // Of the whole problem: what the first reductions did, and what they left.
  ReduceCounts reduced;
  ProblemSize left;
  // Over all frames.
  size_t sweeps = 0;
  size_t joins = 0;
  size_t branches = 0;
};

struct SearchOptions {
  Limit limit = {};
  // Without joins, branches do all that bounds leave open.
  bool join = true;
};

class Search {
 public:
  explicit Search(const PairwiseProblem& problem, const SearchOptions& options = {});

  // Before Run: an assignment to begin with, if it is possible.
  void Start(std::vector<uint32_t> x) { Take(std::move(x)); }

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

  double Cutoff() const { return best_cost_ - Tolerance(best_cost_); }
  bool Stopped() const { return out_of_memory_ || options_.limit.Spent(); }

  // Takes away choices that are too dear for any answer better than the one to begin with. False if there is none.
  bool RemoveDear(Core& core);

  // These return whether the frame is closed: it holds no answer that is better than the best.
  bool Close(Frame& frame);
  bool RunSweeps(Frame& frame, Sweeps& sweeps, int most);
  bool Step(Frame& frame, Sweeps& sweeps);

  // --- prices.cc: prices for the rows that make the bound large. They return whether the frame is closed on the way.
  bool FindPrices(Frame& frame, Sweeps& sweeps);
  bool FindPriceOf(uint32_t row, Frame& frame, Sweeps& sweeps);
  bool FindAllPrices(Frame& frame, Sweeps& sweeps);
  bool SetBestPrices(Frame& frame, Sweeps& sweeps, const std::vector<double>& prices);

  // Takes an assignment of the last frame's core, or of the problem itself, if it is better than the best.
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
  SearchOptions options_;
  // The sum of the largest costs, for the size of rounding errors.
  double scale_ = 0;
  std::vector<Frame> frames_;
  bool out_of_memory_ = false;
  std::vector<uint32_t> best_;
  double best_cost_ = kForbidden;
  double bound_ = -kForbidden;
  SearchCounts counts_;
};

}  // namespace heddle
