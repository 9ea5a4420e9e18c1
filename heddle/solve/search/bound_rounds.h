// Bounds of a problem whose costs change from round to round. What messages have learnt in one round is not lost for the next.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "heddle/solve/problem/problem.h"
#include "heddle/solve/reduce/core.h"
#include "heddle/solve/reduce/limit.h"
#include "heddle/solve/search/sweeps.h"

namespace heddle {

// By variable, sorted: the choices that are left.
using KeptOf = std::vector<std::vector<uint32_t>>;

class BoundRounds {
 public:
  struct Round {
    // Every assignment costs at least this.
    double bound = -std::numeric_limits<double>::infinity();
    // What the messages suggest from run to run, budgets aside: a choice for every variable. None that takes a pair that is forbidden.
    std::vector<std::vector<uint32_t>> suggested;
    // By variable and choice: what an assignment with it costs at least.
    std::vector<std::vector<double>> at_least;
    // For each link that was asked for, by choice of its first variable: the choice of the other that messages find best with it.
    std::vector<std::vector<uint32_t>> best_with;
    size_t sweeps = 0;

    // Choices with which an assignment may cost `cutoff` or less. All empty if none does.
    KeptOf KeptWithin(double cutoff) const;
  };

  // Two variables with an edge, in any order; or twice the same.
  using Link = std::pair<uint32_t, uint32_t>;

  // Of a problem without relations, which has the variables and edges of the last round. With any prices for the budgets: the nearer they
  // are to the best ones, the better. Stops when the bound rises by little of what it is short of `best`,
  // when much fewer choices are left that may be as good as that, or when the limit is spent.
  Round Run(PairwiseProblem problem, double best, const Limit& limit,
            std::vector<double> prices = {}, std::span<const Link> links = {});

  // From now on, problems have these choices of those that they had, and no others; or all that there were at first.
  void Keep(const KeptOf& kept);
  void KeepAll() { kept_.clear(); }

 private:
  // What the ends of an edge have been told.
  struct Told {
    std::vector<double> u;
    std::vector<double> v;
  };
  void Load(const Core& core, const KeptOf& names, Sweeps& sweeps);
  void Store(const Core& core, const KeptOf& names, const Sweeps& sweeps);

  // By variable: what the choices that are left were called at first. Empty: as they are.
  KeptOf kept_;
  // By the ends of the edge; by choice as it was called at first, so that nothing is lost of those that are gone.
  std::map<std::pair<uint32_t, uint32_t>, Told> told_;
};

}  // namespace heddle
