#include "heddle/price/pipeline/bounds.h"

#include <algorithm>

#include "heddle/core/base/division.h"

namespace heddle::price {
namespace {

// A kind of work of one stage, which a rank does once per micro-batch.
struct Job {
  Nanos cost;
  // It cannot begin earlier.
  Nanos head;
  // The step ends this long after it, at the earliest.
  Nanos tail;
};

struct StageJobs {
  Job forward;
  Job input_gradient;
  Job weight_gradient;
};

// Heads and tails follow from one micro-batch that meets no other.
std::vector<StageJobs> FindJobs(const std::vector<int32_t>& rank_of_stage,
                                const PipelineCosts& costs) {
  size_t count = rank_of_stage.size();
  std::vector<StageJobs> jobs(count);
  auto hop = [&](size_t stage) {
    return HopAfter(static_cast<int64_t>(stage), rank_of_stage, costs);
  };
  Nanos time;
  for (size_t s = 0; s < count; ++s) {
    jobs[s].forward = {costs.stages[s].forward, time, {}};
    time += costs.stages[s].forward;
    if (s + 1 < count) time += hop(s);
  }
  for (size_t s = count; s-- > 0;) {
    if (s + 1 < count) time += hop(s);
    jobs[s].input_gradient = {costs.stages[s].input_gradient, time, {}};
    time += costs.stages[s].input_gradient;
    jobs[s].weight_gradient = {costs.stages[s].weight_gradient, time, {}};
  }
  // Backward from the end of the step.
  Nanos rest;
  for (size_t s = 0; s < count; ++s) {
    rest = std::max(rest, costs.stages[s].weight_gradient);
    jobs[s].input_gradient.tail = rest;
    rest += costs.stages[s].input_gradient;
    if (s + 1 < count) rest += hop(s);
  }
  for (size_t s = count; s-- > 0;) {
    jobs[s].forward.tail = rest;
    rest += costs.stages[s].forward;
    if (s > 0) rest += hop(s - 1);
  }
  return jobs;
}

// The longest total of `count` costs, of which each occurs `copies` times.
Nanos LongestTotal(std::vector<Nanos> costs, int64_t copies, int64_t count) {
  std::ranges::sort(costs, std::greater<>());
  Nanos total;
  for (Nanos cost : costs) {
    int64_t taken = std::min(copies, count);
    total += cost * taken;
    count -= taken;
  }
  return total;
}

// One rank and its stages.
class RankBound {
 public:
  RankBound(std::vector<StageJobs> jobs, int64_t micro_batches)
      : stages_(std::move(jobs)), micro_batches_(micro_batches) {
    for (const StageJobs& stage : stages_) {
      jobs_.insert(jobs_.end(), {stage.forward, stage.input_gradient, stage.weight_gradient});
      head_ = std::min(head_, stage.forward.head);
    }
    for (const Job& job : jobs_) work_ += job.cost * micro_batches_;
  }

  // A set of jobs takes the least of its heads, all its costs, and the least of its tails. Takes
  // the best set of the form "head at least h and tail at least t".
  Nanos AnyMemory() const {
    Nanos best;
    for (const Job& first : jobs_) {
      for (const Job& last : jobs_) {
        Nanos time = first.head + last.tail;
        bool empty = true;
        for (const Job& job : jobs_) {
          if (job.head < first.head || job.tail < last.tail) continue;
          time += job.cost * micro_batches_;
          empty = false;
        }
        if (!empty) best = std::max(best, time);
      }
    }
    return best;
  }

  Nanos WithinMemory(int64_t in_flight) const {
    return std::max({FirstBackward(in_flight), LastForward(in_flight), Area(in_flight)});
  }

 private:
  // Before its first backward, a rank can only run as many forwards as memory holds.
  Nanos FirstBackward(int64_t in_flight) const {
    Nanos first{INT64_MAX};
    std::vector<Nanos> forwards;
    for (const StageJobs& stage : stages_) {
      first = std::min(first, stage.input_gradient.head);
      forwards.push_back(stage.forward.cost);
    }
    return first + work_ - LongestTotal(forwards, micro_batches_, in_flight);
  }
  // The mirror image: after its last forward, a rank runs only backwards of activations in memory.
  Nanos LastForward(int64_t in_flight) const {
    Nanos tail{INT64_MAX};
    std::vector<Nanos> backwards;
    for (const StageJobs& stage : stages_) {
      tail = std::min(tail, stage.forward.tail);
      backwards.push_back(stage.input_gradient.cost + stage.weight_gradient.cost);
    }
    return head_ + work_ - LongestTotal(backwards, micro_batches_, in_flight) + tail;
  }
  // Activations are alive at least as long as one micro-batch takes from F to the end of W.
  Nanos Area(int64_t in_flight) const {
    Nanos alive;
    for (const StageJobs& stage : stages_)
      alive += stage.weight_gradient.head + stage.weight_gradient.cost - stage.forward.head;
    return head_ + Nanos{CeilDiv((alive * micro_batches_).value, in_flight)};
  }

  std::vector<StageJobs> stages_;
  int64_t micro_batches_;
  std::vector<Job> jobs_;
  Nanos head_{INT64_MAX};
  Nanos work_;
};

}  // namespace

PipelineBounds FindPipelineBounds(const std::vector<int32_t>& rank_of_stage, int64_t micro_batches,
                                  const PipelineCosts& costs,
                                  const std::vector<int64_t>& in_flight) {
  std::vector<std::vector<StageJobs>> ranks(in_flight.size());
  std::vector<StageJobs> jobs = FindJobs(rank_of_stage, costs);
  for (size_t stage = 0; stage < jobs.size(); ++stage)
    ranks[static_cast<size_t>(rank_of_stage[stage])].push_back(jobs[stage]);
  PipelineBounds out;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RankBound bound(std::move(ranks[rank]), micro_batches);
    out.any = std::max(out.any, bound.AnyMemory());
    out.within_memory = std::max(out.within_memory, bound.WithinMemory(in_flight[rank]));
  }
  out.within_memory = std::max(out.within_memory, out.any);
  return out;
}

}  // namespace heddle::price
