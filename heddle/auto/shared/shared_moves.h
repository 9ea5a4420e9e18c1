// Moves: tensors that decisions read, and what it takes to bring them there. Readers that want one in the same placement share what brings
// it there, so that its price is not a sum of pairs.
//
// `Apart`, in which every reader pays for itself, is a problem of pairs, and never cheaper. `WithCopies` is exact, and has a variable for each
// tensor that is shared: where it lies, and to which placements it is brought for all. `SolveShared` (solve_shared.h) makes an
// answer of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heddle/auto/shared/kept.h"
#include "heddle/auto/shared/pair_costs.h"
#include "heddle/solve/problem/problem.h"
#include "heddle/solve/solve.h"

namespace heddle {

class SharedReader {
 public:
  // By choice: numbers of placements, each once.
  SharedReader(uint32_t decision, const std::vector<std::vector<uint32_t>>& wants);

  uint32_t decision() const { return decision_; }
  size_t choices() const { return choices_; }
  // The most placements that one choice wants.
  size_t most() const { return most_; }
  std::span<const uint32_t> Wants(size_t choice) const {
    std::span<const uint32_t> all(wants_.data() + choice * most_, most_);
    while (!all.empty() && all.back() == kNone) all = all.first(all.size() - 1);
    return all;
  }
  void Keep(const std::vector<uint32_t>& kept);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t decision_;
  size_t choices_;
  size_t most_ = 0;
  // As many for each choice as the most, kNone where it wants fewer.
  std::vector<uint32_t> wants_;
};

// By where a tensor lies and by placement: what it takes to bring it there.
struct MovePrices {
  size_t places() const { return all.size() / std::max(width, size_t{1}); }
  const double* Row(uint32_t lies) const { return &all[lies * width]; }
  double operator()(uint32_t lies, uint32_t to) const { return all[lies * width + to]; }

  // Placements.
  size_t width = 0;
  std::vector<double> all = {};
};

struct SharedMove {
  uint32_t from = 0;
  // By choice of `from`: a number for the place where the tensor lies.
  std::vector<uint32_t> lies;
  std::vector<SharedReader> readers;
  // Moves with fewer choices have the same.
  std::shared_ptr<const MovePrices> prices;

  bool is_shared() const { return readers.size() > 1; }

  // What an assignment of the decisions pays for it.
  double Cost(const std::vector<uint32_t>& x) const;
  // The same one by one: the decision that wants it first, and the price.
  template <typename Visit>
  void ForEachCopy(const std::vector<uint32_t>& x, Visit visit) const {
    std::vector<bool> made(prices->width);
    for (const SharedReader& reader : readers) {
      for (uint32_t to : reader.Wants(x[reader.decision()])) {
        if (!made[to]) visit(reader.decision(), (*prices)(lies[x[from]], to));
        made[to] = true;
      }
    }
  }
};

// By placement: how many readers may want it.
std::vector<size_t> WantedBy(const std::vector<SharedReader>& readers, size_t placements);

struct AutoProblem {
  // What choices cost by themselves; one budget at most, and restrictions. No edges.
  PairwiseProblem own;
  std::vector<SharedMove> moves;
};
double Cost(const AutoProblem& problem, const std::vector<uint32_t>& x);
// An edge for each reader of a move.
ProblemSize SizeOf(const AutoProblem& problem);

PairwiseProblem Apart(const AutoProblem& problem);

// The same with no other choices.
SharedMove KeepChoices(SharedMove move, const KeptOf& kept);
PairwiseBudget KeepChoices(const PairwiseBudget& budget, const KeptOf& kept);
AutoProblem KeepChoices(const AutoProblem& problem, const KeptOf& kept);

class WithCopies {
 public:
  // `Fits(problem)`.
  explicit WithCopies(const AutoProblem& problem);

  static constexpr size_t kMostEntries = size_t{1} << 23;
  // Whether matrices of the copies have no more entries than that.
  static bool Fits(const AutoProblem& problem, size_t most_entries = kMostEntries);

  // Decisions under their numbers, and behind them variables of the copies.
  const PairwiseProblem& problem() const { return out_; }
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

  const AutoProblem& from_;
  PairwiseProblem out_;
  // By move; empty where nobody shares it.
  std::vector<std::vector<Copies>> choices_;
};

}  // namespace heddle
