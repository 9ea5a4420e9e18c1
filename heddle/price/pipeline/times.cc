#include "heddle/price/pipeline/times.h"

#include <algorithm>
#include <span>

#include "heddle/core/pipeline/run_in_order.h"

namespace heddle::price {
namespace {

void FindInFlight(const std::vector<PipelineAction>& actions, const PipelineCosts& costs,
                  RankTimes& rank) {
  int64_t now = 0;
  Bytes bytes;
  for (const PipelineAction& action : actions) {
    Bytes of_stage = costs.stages[static_cast<size_t>(action.stage)].activations;
    if (action.work == PipelineWork::kForward) {
      rank.most_in_flight = std::max(rank.most_in_flight, ++now);
      bytes += of_stage;
      rank.most_activations = std::max(rank.most_activations, bytes);
    } else if (action.work != PipelineWork::kInputGradient) {
      --now;
      bytes -= of_stage;
    }
  }
}

}  // namespace

Nanos CostOf(const PipelineAction& action, const PipelineCosts& costs) {
  const StageCost& cost = costs.stages[static_cast<size_t>(action.stage)];
  switch (action.work) {
    case PipelineWork::kForward: return cost.forward;
    case PipelineWork::kInputGradient: return cost.input_gradient;
    case PipelineWork::kWeightGradient: return cost.weight_gradient;
    case PipelineWork::kBackward: break;
  }
  return cost.input_gradient + cost.weight_gradient;
}

Nanos HopAfter(int64_t stage, const std::vector<int32_t>& rank_of_stage,
               const PipelineCosts& costs) {
  auto at = static_cast<size_t>(stage);
  return rank_of_stage[at] == rank_of_stage[at + 1] ? Nanos{} : costs.hop;
}

double PipelineTimes::bubble() const {
  double busy = 0;
  for (const RankTimes& rank : ranks) busy += static_cast<double>(rank.busy.value);
  double all = static_cast<double>(step.value) * static_cast<double>(ranks.size());
  return all > 0 ? 1 - busy / all : 0;
}

PipelineTimes FindPipelineTimes(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  HEDDLE_CHECK(costs.stages.size() == static_cast<size_t>(schedule.stages), "one cost per stage");
  std::vector<int32_t> rank_of_stage = RanksOfStages(schedule);
  PipelineTimes out;
  for (const std::vector<PipelineAction>& actions : schedule.ranks) {
    RankTimes& rank = out.ranks.emplace_back();
    rank.begin.reserve(actions.size());
    rank.end.reserve(actions.size());
    FindInFlight(actions, costs, rank);
  }
  PipelineResults<Nanos> made(schedule, Nanos{});
  auto arrival = [&](const PipelineAction& action) {
    Nanos latest;
    PipelineNeeds needs = NeedsOf(action, schedule.stages);
    for (int i = 0; i < needs.count; ++i) {
      int64_t from = needs.needs[i].stage;
      Nanos time = made.at(needs.needs[i], action.micro_batch);
      if (from != action.stage)
        time += HopAfter(std::min<int64_t>(from, action.stage), rank_of_stage, costs);
      latest = std::max(latest, time);
    }
    return latest;
  };
  std::vector<size_t> ran = RunInOrder(schedule, [&](size_t rank, size_t at) {
    std::span<const PipelineAction> group(&schedule.ranks[rank][at],
                                          GroupSize(schedule.ranks[rank][at]));
    RankTimes& times = out.ranks[rank];
    Nanos now = times.end.empty() ? Nanos{} : times.end.back();
    for (const PipelineAction& action : group) now = std::max(now, arrival(action));
    for (const PipelineAction& action : group) {
      times.begin.push_back(now);
      now += CostOf(action, costs);
      times.end.push_back(now);
      times.busy += CostOf(action, costs);
    }
    for (const PipelineAction& action : group)
      if (std::optional<PipelineResult> result = ResultOf(action))
        made.at({action.stage, *result}, action.micro_batch) = now;
    out.step = std::max(out.step, now);
  });
  for (size_t rank = 0; rank < ran.size(); ++rank)
    HEDDLE_CHECK(ran[rank] == schedule.ranks[rank].size(), "a deadlock in a valid schedule");
  for (size_t stage = 0; stage + 1 < rank_of_stage.size(); ++stage)
    if (rank_of_stage[stage] != rank_of_stage[stage + 1])
      out.messages += 2 * schedule.micro_batches;
  return out;
}

}  // namespace heddle::price
