// MemorySearch: finds the fastest step within a memory budget.
//
// 1. Levels treat all blocks equally: policies and cuts at many prices, with weights kept or
//    gathered again, and with copies on the host. The search tries all of them.
// 2. The budget is between two neighbors of the lower hull of peaks and times. Between them, the
//    first n blocks use the smaller level and the others the faster one. Then the first n values of
//    one block do. Bisection finds n.
//
// A trial depends on the budget only through comparisons of peaks with it, and counts only if its
// peak and time are between those of the two points it mixes. So a larger budget is never slower.
#pragma once

#include <memory>
#include <vector>

#include "heddle/search/memory/levels.h"
#include "heddle/search/memory/priced_cut.h"

namespace heddle::search {

class MemorySearch {
 public:
  // `clean` has run on `module`, which has one local graph; `after` runs after the decisions. Both
  // must outlive this object. `offloads`: activations may move to the host, whose memory does not
  // count. Ops have the times of separate kernels, because bounds are sums of them.
  static Result<std::unique_ptr<MemorySearch>> Make(const Module& module,
                                                    const compile::Pipeline& after,
                                                    const price::CostModel& model,
                                                    bool offloads = true);
  MemorySearch(const Module& module, const compile::Pipeline& after, price::CostModel additive,
               RunTimes times, bool offloads);
  MemorySearch(const MemorySearch&) = delete;
  MemorySearch& operator=(const MemorySearch&) = delete;

  // Returns the fastest choice whose peak is at most `budget`. Fails with Diag::kInfeasible if none
  // is; the error states the smallest peak and its parts.
  Result<MemoryChoice> FindWithin(Bytes budget);
  // Returns the choices that no other beats in memory and time, from the largest peak to the
  // smallest.
  Result<std::vector<MemoryChoice>> Sweep();

  Trials& trials() { return trials_; }
  // The smallest peak of all tried choices.
  Bytes least() const { return trials_.Smallest().peak; }

 private:
  // A trial, and the name of its marks.
  struct Point {
    std::string name;
    const MemoryChoice* choice;
  };
  // Values that change together.
  using Group = std::vector<ValueId>;

  Status TryLevels();
  Status TryVariants();
  Status TryLevel(const Level& level);
  void FindHull();
  std::vector<Group> BlocksOf(const Marks& a, const Marks& b) const;
  // The first n groups of `small`, the others of `fast`.
  struct Mix {
    Point fast;
    Point small;
    std::vector<Group> groups;
    // Whether groups are the values of one block.
    bool of_block = false;
  };
  Result<std::vector<Point>> TryParts();
  Result<Point> TryMix(const Mix& mix, size_t n);
  Status Narrow(const Mix& mix, Bytes budget, Point& fast, Point& small);
  Result<MemoryChoice> Between(Point fast, Point small, Bytes budget);
  Result<MemoryChoice> Infeasible(Bytes budget) const;
  Nanos BoundFor(Bytes budget, Nanos step) const;

  price::CostModel costs_;
  Trials trials_;
  Weights weights_;
  Blocks blocks_;
  RunTimes times_;
  PricedCut cut_;
  // The same with compute times only, for a bound.
  PricedCut computing_;
  LevelVariants variants_;
  bool offloads_;
  // Tried levels in order, and those on the lower hull, from the fastest to the smallest.
  std::vector<Point> levels_;
  std::vector<Point> hull_;
};

}  // namespace heddle::search
