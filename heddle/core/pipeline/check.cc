#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/pipeline/run_in_order.h"

namespace heddle {
namespace {

Status CheckSize(const PipelineSchedule& schedule) {
  if (schedule.stages <= kMostStageMicroBatches / schedule.micro_batches) return Done{};
  return Error(Diag::kSchedule, "{} stages x {} micro-batches are too many; the limit is {}",
               WithCommas(schedule.stages), WithCommas(schedule.micro_batches),
               WithCommas(kMostStageMicroBatches));
}

// Every stage belongs to one rank, and every rank has a stage.
Status CheckStages(const PipelineSchedule& schedule) {
  std::vector<const PipelineAction*> first(static_cast<size_t>(schedule.stages));
  std::vector<size_t> owner(first.size());
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    if (schedule.ranks[rank].empty())
      return Error(Diag::kSchedule, "rank {} has no actions; write one line per rank", rank);
    for (const PipelineAction& action : schedule.ranks[rank]) {
      auto stage = static_cast<size_t>(action.stage);
      if (first[stage] == nullptr) {
        first[stage] = &action;
        owner[stage] = rank;
      } else if (owner[stage] != rank) {
        return Error(Diag::kSchedule,
                     "stage {} is on rank {} (`{}`) and on rank {} (`{}`); a stage belongs to one "
                     "rank",
                     stage, owner[stage], Token(*first[stage]), rank, Token(action));
      }
    }
  }
  auto missing = std::ranges::find(first, nullptr);
  if (missing == first.end()) return Done{};
  return Error(Diag::kSchedule, "stage {} has no actions; the last stage is {}",
               missing - first.begin(), schedule.stages - 1);
}

// Each stage has F and either B or I and W for each micro-batch, once.
Status CheckCounts(const PipelineSchedule& schedule) {
  // A bit for each kind of work that occurs.
  std::vector<uint8_t> seen(static_cast<size_t>(schedule.stages * schedule.micro_batches));
  auto index = [&](int64_t stage, int64_t micro_batch) {
    return static_cast<size_t>(stage * schedule.micro_batches + micro_batch);
  };
  auto bit = [](PipelineWork work) { return static_cast<uint8_t>(1 << static_cast<int>(work)); };
  constexpr auto kB = PipelineWork::kBackward;
  constexpr auto kI = PipelineWork::kInputGradient;
  constexpr auto kW = PipelineWork::kWeightGradient;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const PipelineAction& action : schedule.ranks[rank]) {
      uint8_t& bits = seen[index(action.stage, action.micro_batch)];
      if ((bits & bit(action.work)) != 0)
        return Error(Diag::kSchedule, "`{}` occurs twice on rank {}", Token(action), rank);
      bits |= bit(action.work);
      if ((bits & bit(kB)) != 0 && (bits & (bit(kI) | bit(kW))) != 0)
        return Error(Diag::kSchedule,
                     "rank {} has `{}` besides another backward of this micro-batch; use either B, "
                     "or I and W",
                     rank, Token(action));
    }
  }
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    for (int32_t micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch) {
      uint8_t bits = seen[index(stage, micro_batch)];
      for (PipelineWork work : {PipelineWork::kForward, kI, kW}) {
        if ((bits & bit(work)) != 0) continue;
        if (work != PipelineWork::kForward && (bits & bit(kB)) != 0) continue;
        bool neither = work == kI && (bits & bit(kW)) == 0;
        return Error(Diag::kSchedule,
                     "`{}` is missing; the last stage is {}, and the last micro-batch {}",
                     Token({stage, neither ? kB : work, micro_batch}), schedule.stages - 1,
                     schedule.micro_batches - 1);
      }
    }
  }
  return Done{};
}

struct ActionPlace {
  size_t rank = 0;
  size_t at = 0;
};

// Where the schedule produces a result.
ActionPlace FindProducer(const PipelineSchedule& schedule, PipelineNeed need, int64_t micro_batch) {
  auto produces = [&](const PipelineAction& action) {
    return action.stage == need.stage && action.micro_batch == micro_batch &&
           ResultOf(action) == need.result;
  };
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    auto found = std::ranges::find_if(schedule.ranks[rank], produces);
    if (found != schedule.ranks[rank].end())
      return {rank, static_cast<size_t>(found - schedule.ranks[rank].begin())};
  }
  HEDDLE_CHECK(false, "a schedule lacks a result");
  return {};
}

// `next`: the action at which each rank is blocked.
Failure Deadlock(const PipelineSchedule& schedule, const std::vector<size_t>& next) {
  struct Wait {
    const PipelineAction* action;
    ActionPlace place;
  };
  auto wait_of = [&](size_t rank) {
    ActionPlace place;
    auto has_run = [&](PipelineNeed need, int64_t micro_batch) {
      place = FindProducer(schedule, need, micro_batch);
      return place.at < next[place.rank];
    };
    PipelineNeed unmet;
    const PipelineAction* action =
        FirstUnmet(schedule.ranks[rank], next[rank], schedule.stages, has_run, unmet);
    HEDDLE_CHECK(action != nullptr, "a rank is not blocked");
    return Wait{action, place};
  };
  size_t rank = 0;
  while (next[rank] == schedule.ranks[rank].size()) ++rank;
  // Each blocked rank waits for a blocked rank, so following them reaches a cycle.
  std::vector<char> seen(schedule.ranks.size());
  for (; seen[rank] == 0; rank = wait_of(rank).place.rank) seen[rank] = 1;
  std::string cycle;
  size_t start = rank;
  do {
    auto [action, place] = wait_of(rank);
    const std::vector<PipelineAction>& others = schedule.ranks[place.rank];
    const PipelineAction& blocked = others[next[place.rank]];
    if (!cycle.empty()) cycle += "; ";
    cycle += fmt::format("`{}` on rank {} waits for `{}`", Token(*action), rank,
                         Token(others[place.at]));
    if (place.at >= next[place.rank] + GroupSize(blocked))
      cycle += fmt::format(", which rank {} runs after `{}`", place.rank, Token(blocked));
    rank = place.rank;
  } while (rank != start);
  return Error(Diag::kSchedule, "the schedule deadlocks: {}", cycle);
}

}  // namespace

Status CheckPipelineSchedule(const PipelineSchedule& schedule) {
  if (schedule.stages == 0) return Error(Diag::kSchedule, "the schedule has no actions");
  HEDDLE_RETURN_IF_ERROR(CheckSize(schedule));
  HEDDLE_RETURN_IF_ERROR(CheckStages(schedule));
  HEDDLE_RETURN_IF_ERROR(CheckCounts(schedule));
  std::vector<size_t> next = RunInOrder(schedule, [](size_t, size_t) {});
  for (size_t rank = 0; rank < next.size(); ++rank)
    if (next[rank] < schedule.ranks[rank].size()) return Deadlock(schedule, next);
  return Done{};
}

std::vector<int32_t> RanksOfStages(const PipelineSchedule& schedule) {
  std::vector<int32_t> ranks(static_cast<size_t>(schedule.stages));
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const PipelineAction& action : schedule.ranks[rank])
      ranks[static_cast<size_t>(action.stage)] = static_cast<int32_t>(rank);
  return ranks;
}

}  // namespace heddle
