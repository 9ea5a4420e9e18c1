// PipelineSearch: predicts the fastest pipelines for a model.
//
// The costs of a micro-batch, from small models, give the time, a lower bound and the memory of
// each schedule without its graphs. Pipelines whose bound exceeds the best prediction are pruned.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "heddle/core/pipeline/schedule.h"
#include "heddle/price/pipeline/times.h"
#include "heddle/search/arrangement/point_evaluator.h"

namespace heddle::search {

struct PredictedPipeline {
  SearchPoint point;
  Nanos step;
  // No order of the same actions, with as many activations on each rank, takes less.
  Nanos bound;
  Bytes peak;

  // The predicted peak minus the margin, which is larger than that of promises.
  Bytes least_peak() const { return AtLeast(peak, kPeakError); }
  static constexpr int64_t kPeakError = 10;
};

// How far a step is above its bound: 0 proves that no order of the same work is faster.
inline double GapOf(Nanos step, Nanos bound) {
  return bound.value == 0 ? 0
                          : static_cast<double>(step.value) / static_cast<double>(bound.value) - 1;
}

class PipelineSearch {
 public:
  // `evaluator` must outlive this object. A predicted peak may exceed `budget` by its margin.
  PipelineSearch(PointEvaluator& evaluator, Bytes budget)
      : evaluator_(evaluator), budget_(budget) {}

  // The pipelines with about the least predicted time, fastest first. `space` is that of plans
  // without a pipeline.
  std::vector<PredictedPipeline> Run(const ArrangementSpace& space);
  // Number of pipelines of this space.
  size_t points() const { return points_; }
  // Why arrangements were skipped.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // A schedule and its stages per rank.
  struct Order {
    const ScheduleFamily* family = nullptr;
    int64_t chunks = 1;
  };
  // Costs do not depend on the numbers of coordinates and of ranks that share weights, except for
  // the state, which these ranks divide.
  using CostKey = std::tuple<int64_t, int64_t, int64_t, std::string>;
  struct KnownCosts {
    Result<ModelCosts> costs;
    int64_t shard = 1;
  };

  static std::vector<Order> Orders();
  std::vector<Arrangement> Candidates(const ArrangementSpace& space) const;
  // Sequences of a micro-batch on a rank.
  int64_t SequencesOf(const Arrangement& arrangement) const;
  Result<ModelCosts> CostsFor(const Arrangement& arrangement, const std::string& policy);
  // No pipeline of these costs is faster than if all ranks had equally much work and never waited.
  Nanos LeastStep(const Arrangement& arrangement, const ModelCosts& costs) const;
  void TryPolicy(const Arrangement& arrangement, const std::string& policy);
  void TryOrder(SearchPoint point, const ModelCosts& costs, const Order& order);
  Nanos Limit() const;

  PointEvaluator& evaluator_;
  Bytes budget_;
  std::map<CostKey, KnownCosts> known_;
  std::vector<PredictedPipeline> found_;
  size_t points_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace heddle::search
