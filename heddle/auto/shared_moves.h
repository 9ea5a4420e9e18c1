// Tensors that several decisions read. Readers that want one in the same placement share what brings it there, so that its price is not a
// sum of pairs.
//
// Problems of pairs that are close to it are easy: `Apart`, in which every reader pays for itself, is never cheaper; `Weighted`, in which
// every reader pays its part of each price, is never dearer. The exact one, `WithCopies`, has a variable for each shared tensor: where it
// lies, and to which placements it is brought for all. `SolveShared` (solve_shared.h) makes an answer of them.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/auto/pair_costs.h"
#include "heddle/solve/problem/problem.h"
#include "heddle/solve/search/bound_rounds.h"
#include "heddle/solve/solve.h"

namespace heddle {

struct SharedReader {
  uint32_t decision = 0;
  // By choice: numbers of placements, each once.
  std::vector<std::vector<uint32_t>> wants;
};

struct SharedMove {
  uint32_t from = 0;
  // By choice of `from`: a number for the placement in which the tensor lies.
  std::vector<uint32_t> lies;
  std::vector<SharedReader> readers;
  // By where it lies and by placement: what it takes to bring it there.
  std::vector<std::vector<double>> prices;

  // What an assignment of the decisions pays for it.
  double Cost(const std::vector<uint32_t>& x) const;
  // The same one by one: the decision that wants it first, and the price.
  template <typename Visit>
  void ForEachCopy(const std::vector<uint32_t>& x, Visit visit) const {
    std::vector<bool> made(prices[0].size());
    for (const SharedReader& reader : readers) {
      for (uint32_t to : reader.wants[x[reader.decision]]) {
        if (!made[to]) visit(reader.decision, prices[lies[x[from]]][to]);
        made[to] = true;
      }
    }
  }
};

// By placement: how many readers may want it.
std::vector<size_t> WantedBy(const SharedMove& move);
// Every reader pays each price for itself.
void AddApart(const SharedMove& move, PairCosts& costs);

// The parts that readers of one tensor pay: by where it lies, by reader and by placement. Those of one placement add up to 1 at most.
using ShareWeights = std::vector<std::vector<std::vector<double>>>;
// Alike for all who may want a placement.
ShareWeights EqualWeights(const SharedMove& move);

struct AutoProblem {
  // What is paid whatever is shared; budgets and restrictions, too.
  PairwiseProblem own;
  std::vector<SharedMove> shared;
};
double Cost(const AutoProblem& problem, const std::vector<uint32_t>& x);

PairwiseProblem Apart(const AutoProblem& problem);
// With weights for each shared move.
PairwiseProblem Weighted(const AutoProblem& problem, const std::vector<ShareWeights>& weights);

template <typename T>
std::vector<T> Only(const std::vector<T>& all, const std::vector<uint32_t>& kept) {
  std::vector<T> out;
  out.reserve(kept.size());
  for (uint32_t k : kept) out.push_back(all[k]);
  return out;
}
// The same with no other choices.
SharedMove KeepChoices(SharedMove move, const KeptOf& kept);
PairwiseBudget KeepChoices(const PairwiseBudget& budget, const KeptOf& kept);
AutoProblem KeepChoices(const AutoProblem& problem, const KeptOf& kept);

class WithCopies {
 public:
  // Where matrices of the copies would have more entries than that, every copy is a variable of its own: exact as well, but bounds are
  // loose.
  static constexpr size_t kMostEntries = size_t{1} << 23;
  explicit WithCopies(const AutoProblem& problem, size_t most_entries = kMostEntries);

  // Whether no copy is a variable of its own then.
  static bool Fits(const AutoProblem& problem, size_t most_entries);

  // Decisions under their numbers, and behind them variables of the copies.
  const PairwiseProblem& problem() const { return out_; }
  // Whether some copies are variables of their own.
  bool is_loose() const { return is_loose_; }
  // An assignment of the decisions with the copies that it wants.
  std::vector<uint32_t> Extended(std::vector<uint32_t> x) const;

 private:
  // A place where the tensor lies, and the placements that it is brought to for all who want it there.
  struct Copies {
    uint32_t lies = 0;
    std::vector<uint32_t> made;
  };

  void AddMove(const SharedMove& move, PairCosts& pairs);
  static std::vector<Copies> ListCopies(const SharedMove& move, size_t entries_left);
  void AddSingly(const SharedMove& move, PairCosts& pairs);

  const AutoProblem& from_;
  size_t entries_left_;
  PairwiseProblem out_;
  // By shared move; empty where every copy is a variable of its own.
  std::vector<std::vector<Copies>> choices_;
  bool is_loose_ = false;
};

}  // namespace heddle
