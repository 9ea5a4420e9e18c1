// MemorySearch: the fastest step that fits into a budget of memory.
//
// 1. Levels treat all blocks alike: policies, cuts at many prices, with weights kept or gathered again, with copies on the host. All are tried.
// 2. The budget lies between two neighbours of the lower hull of their peaks and times. Between them, the first n blocks take the
//    smaller and the others the faster one; then, of one block, the first n values do. Bisection finds n.
//
// What is tried in a step depends on the budget only through the side of each trial that it lies on, and a trial counts only if it lies
// between the two that it was made of, in peak and in time. So a larger budget is never slower.
#pragma once

#include <memory>
#include <vector>

#include "heddle/search/memory/levels.h"
#include "heddle/search/memory/priced_cut.h"

namespace heddle::search {

class MemorySearch {
 public:
  // `clean` has run on `module`, which has one local graph; `after` is what runs behind the decisions. All outlive this.
  // `offloads`: activations may move to the host, whose memory does not count.
  static Result<std::unique_ptr<MemorySearch>> Make(const Module& module,
                                                    const compile::Pipeline& after,
                                                    const price::CostModel& model,
                                                    bool offloads = true);
  MemorySearch(const Module& module, const compile::Pipeline& after, const price::CostModel& model,
               RunTimes times, bool offloads);
  MemorySearch(const MemorySearch&) = delete;
  MemorySearch& operator=(const MemorySearch&) = delete;

  // The fastest choice whose peak is at most `budget`. Diag::kInfeasible, with the least peak there is and what holds it, if none is.
  Result<MemoryChoice> Within(Bytes budget);
  // From the largest peak to the smallest, without those that need more memory and more time than another.
  Result<std::vector<MemoryChoice>> Sweep();

  Trials& trials() { return trials_; }
  // The least peak of all choices that were tried.
  Bytes least() const { return trials_.Smallest().peak; }

 private:
  // A trial, and the name of its marks.
  struct Point {
    std::string name;
    const MemoryChoice* choice;
  };
  // Values that change sides together.
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
    // Groups are the values of one block.
    bool of_block = false;
  };
  Result<std::vector<Point>> TryParts();
  Result<Point> TryMix(const Mix& mix, size_t n);
  Status Narrow(const Mix& mix, Bytes budget, Point& fast, Point& small);
  Result<MemoryChoice> Between(Point fast, Point small, Bytes budget);
  Result<MemoryChoice> Infeasible(Bytes budget) const;
  Nanos BoundFor(Bytes budget, Nanos step) const;

  Trials trials_;
  Weights weights_;
  Blocks blocks_;
  RunTimes times_;
  PricedCut cut_;
  // The same where nothing but compute takes time: a bound.
  PricedCut computing_;
  LevelVariants variants_;
  bool offloads_;
  // Tried, in this order; and those of them on the lower hull, from the fastest to the smallest.
  std::vector<Point> levels_;
  std::vector<Point> hull_;
};

}  // namespace heddle::search
