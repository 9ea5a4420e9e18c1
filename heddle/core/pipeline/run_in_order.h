// Visits the actions of a pipeline schedule in an order that respects their dependences.
#pragma once

#include <optional>
#include <vector>

#include "heddle/core/pipeline/schedule.h"

namespace heddle {

// The results of actions that other actions read. B produces both gradients.
enum class PipelineResult : uint8_t { kOutput, kInputGradient };

struct PipelineNeed {
  int64_t stage = 0;
  PipelineResult result = PipelineResult::kOutput;
};

// The result of an action that others read; W has none.
inline std::optional<PipelineResult> ResultOf(const PipelineAction& action) {
  if (action.work == PipelineWork::kWeightGradient) return std::nullopt;
  return action.work == PipelineWork::kForward ? PipelineResult::kOutput
                                               : PipelineResult::kInputGradient;
}

// The number of actions that begin and end together.
inline size_t GroupSize(const PipelineAction& first) { return first.with_next ? 2 : 1; }

// The results that an action reads, for its own micro-batch: the first `count` of `needs`.
struct PipelineNeeds {
  PipelineNeed needs[2];
  int count = 0;
};
inline PipelineNeeds NeedsOf(const PipelineAction& action, int64_t stages) {
  PipelineNeeds out;
  int64_t stage = action.stage;
  switch (action.work) {
    case PipelineWork::kForward:
      if (stage > 0) out.needs[out.count++] = {stage - 1, PipelineResult::kOutput};
      break;
    case PipelineWork::kBackward:
    case PipelineWork::kInputGradient:
      out.needs[out.count++] = {stage, PipelineResult::kOutput};
      if (stage + 1 < stages) out.needs[out.count++] = {stage + 1, PipelineResult::kInputGradient};
      break;
    case PipelineWork::kWeightGradient:
      out.needs[out.count++] = {stage, PipelineResult::kInputGradient};
      break;
  }
  return out;
}

// One value per stage, micro-batch and result.
template <typename T>
class PipelineResults {
 public:
  PipelineResults(const PipelineSchedule& schedule, T value)
      : micro_batches_(schedule.micro_batches),
        values_(static_cast<size_t>(2 * schedule.stages * schedule.micro_batches), value) {}

  T& at(PipelineNeed need, int64_t micro_batch) {
    return values_[static_cast<size_t>(
        (2 * need.stage + static_cast<int64_t>(need.result)) * micro_batches_ + micro_batch)];
  }

 private:
  int64_t micro_batches_;
  std::vector<T> values_;
};

// The first result, in order, that actions[at] or its partner in a pair still lacks; null: none.
template <typename Done>
const PipelineAction* FirstUnmet(const std::vector<PipelineAction>& actions, size_t at,
                                 int64_t stages, Done done, PipelineNeed& unmet) {
  for (size_t i = at; i < at + GroupSize(actions[at]); ++i) {
    PipelineNeeds needs = NeedsOf(actions[i], stages);
    for (int n = 0; n < needs.count; ++n) {
      unmet = needs.needs[n];
      if (!done(unmet, actions[i].micro_batch)) return &actions[i];
    }
  }
  return nullptr;
}

// Calls visit(rank, position) for each action, or for the first of a pair, once all needs are met
// and the rank has run all earlier actions. Returns the number of actions that each rank ran: all
// of them unless the schedule deadlocks. Each result must have at most one producer.
template <typename Visit>
std::vector<size_t> RunInOrder(const PipelineSchedule& schedule, Visit visit) {
  std::vector<size_t> next(schedule.ranks.size());
  PipelineResults<char> done(schedule, 0);
  // The rank that waits for a result, or -1. Only the rank of one neighbouring stage can.
  PipelineResults<int32_t> waiting(schedule, -1);
  std::vector<int32_t> ready;
  for (size_t rank = schedule.ranks.size(); rank-- > 0;)
    ready.push_back(static_cast<int32_t>(rank));
  auto is_done = [&](PipelineNeed need, int64_t micro_batch) {
    return done.at(need, micro_batch) != 0;
  };
  while (!ready.empty()) {
    int32_t rank = ready.back();
    ready.pop_back();
    const std::vector<PipelineAction>& actions = schedule.ranks[static_cast<size_t>(rank)];
    size_t& at = next[static_cast<size_t>(rank)];
    while (at < actions.size()) {
      PipelineNeed unmet;
      if (const PipelineAction* action = FirstUnmet(actions, at, schedule.stages, is_done, unmet)) {
        waiting.at(unmet, action->micro_batch) = rank;
        break;
      }
      visit(static_cast<size_t>(rank), at);
      size_t end = at + GroupSize(actions[at]);
      for (; at < end; ++at) {
        std::optional<PipelineResult> result = ResultOf(actions[at]);
        if (!result) continue;
        done.at({actions[at].stage, *result}, actions[at].micro_batch) = 1;
        int32_t& waiter = waiting.at({actions[at].stage, *result}, actions[at].micro_batch);
        if (waiter >= 0) ready.push_back(waiter);
        waiter = -1;
      }
    }
  }
  return next;
}

}  // namespace heddle
