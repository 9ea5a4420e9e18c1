// ExactSearch: the fastest of all ways to keep or recompute what backward needs, where there are few.
//
// Branch and bound. Values are decided from the last to the first, so that whether a value is needed at all is known when its turn comes.
// A branch ends where compute alone, or compute and the collectives that it waits for (path_bound.h), take as long as the best so far, or
// where what is kept for certain does not fit. Every leaf is tried. The bounds hold for whatever pipeline keeps the order of what computes.
#pragma once

#include <vector>

#include "heddle/budget/path_bound.h"

namespace heddle {

class ExactSearch {
 public:
  // Whether so many decisions are few enough, in a graph that every branch walks. Fewer are where compute hides behind collectives, and
  // fewer still where passes launch those of weights elsewhere: then it bounds little.
  static bool IsFew(size_t decisions, const Trials& trials);

  // All outlive this.
  ExactSearch(Trials& trials, const Weights& weights, const RunTimes& times, Bytes budget);

  // The best that fits, if it is faster than `best`, which may be null; `best` otherwise.
  Result<const MemoryChoice*> Run(const MemoryChoice* best);
  // Whether it is known to be the best. A search that would take minutes is given up.
  bool complete() const { return work_ < kMostWork; }

 private:
  // A value that a branch may decide about, from the last to the first.
  struct Step {
    ValueId value;
    bool decides;
  };

  void FindSteps(const Weights& weights);
  void FindMemory();
  Status Branch(size_t at);
  Status Recompute(size_t at);
  Status Keep(size_t at);
  Status Leaf();
  // Adds what a value takes where it is kept, and would not take otherwise; or takes it off again.
  void AddKept(ValueId v, int64_t sign);

  // In branches, a trial being worth many: half a minute.
  static constexpr int64_t kMostWork = 20'000'000;
  static constexpr int64_t kTrialWork = 50;

  Trials& trials_;
  int64_t work_ = 0;
  const Graph& graph_;
  // By node.
  const std::vector<Nanos>& times_again_;
  PathBound path_;
  Bytes budget_;
  const MemoryChoice* best_ = nullptr;
  std::vector<Step> steps_;
  // By value: how many of what reads it behind forward, or is computed again, need it. By node: how many of its results are.
  std::vector<int64_t> needed_;
  std::vector<int64_t> runs_again_;
  Marks marks_;
  Nanos time_;
  // Behind forward, by node: what is there whatever is decided, and what is kept so far.
  NodeId first_behind_;
  std::vector<Bytes> live_;
  // By value: the first node behind forward that reads it, or a view of it.
  std::vector<NodeId> first_read_;
};

}  // namespace heddle
