// Schedules of pipeline parallelism as data: what each rank computes, in order.
//
// A model is cut into stages, and each stage belongs to one rank. A batch is cut into
// micro-batches. Transfers between ranks are not part of a schedule; they follow from it.
// docs/pipeline.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle {

// The letters of PyTorch: F, B, I, W. I and W are the two parts of B.
enum class PipelineWork : uint8_t { kForward, kBackward, kInputGradient, kWeightGradient };

// One stage of one micro-batch.
struct PipelineAction {
  int32_t stage = 0;
  PipelineWork work = PipelineWork::kForward;
  int32_t micro_batch = 0;
  // The rank runs it together with its next action, as in `(0F7;7B3)OVERLAP_F_B`.
  bool with_next = false;

  bool operator==(const PipelineAction&) const = default;
};

struct PipelineSchedule {
  // The family as PyTorch spells it, or the name of a file.
  std::string name;
  int64_t stages = 0;
  int64_t micro_batches = 0;
  // The actions of each rank.
  std::vector<std::vector<PipelineAction>> ranks;
};

// The most stages times micro-batches of a schedule.
inline constexpr int64_t kMostStageMicroBatches = int64_t{1} << 20;

// `2F0`, as in PyTorch.
std::string Token(const PipelineAction& action);

struct ParsedSchedule {
  PipelineSchedule schedule;
  // Transfers, gathers and reductions that were left out, because Heddle places its own.
  int64_t communication = 0;
};
// Reads the CSV of torch.distributed.pipelining: one line per rank, one action per cell. Empty
// cells are idle steps of PyTorch and are skipped. The result is a valid schedule.
Result<ParsedSchedule> ParseSchedule(std::string_view csv, std::string name);
// PyTorch's format `compute_only`.
std::string FormatCsv(const PipelineSchedule& schedule);

// Fails unless every stage belongs to one rank, each of its micro-batches has F and either B or I
// and W, and the ranks can run their actions in order without deadlock. The message of a deadlock
// has the cycle.
Status CheckPipelineSchedule(const PipelineSchedule& schedule);

// The rank of each stage of a valid schedule.
std::vector<int32_t> RanksOfStages(const PipelineSchedule& schedule);

// Number of stages that a rank of a family may have.
enum class StagesPerRank : uint8_t { kOne, kAny, kTwo };

struct ScheduleFamily {
  std::string_view name;
  StagesPerRank stages;
  std::string_view summary;
};
const std::vector<ScheduleFamily>& ScheduleFamilies();
// Returns the family of this name, in any case, or null.
const ScheduleFamily* FindScheduleFamily(std::string_view name);

struct PipelineShape {
  int64_t ranks = 1;
  int64_t stages = 1;
  int64_t micro_batches = 1;
};
// The same order of actions as in PyTorch. Fails if the family cannot have this shape.
Result<PipelineSchedule> MakeSchedule(const ScheduleFamily& family, const PipelineShape& shape);

// The schedule that a plan states: the name of a family, or the rows of a file, as in
// `0F0,0B0/1F0,1B0`. Fails if it cannot have this shape.
Result<PipelineSchedule> FindSchedule(std::string_view text, const PipelineShape& shape);
// The rows of a schedule, for FindSchedule.
std::string FormatRows(const PipelineSchedule& schedule);
// The name of the family, or `csv` for rows.
std::string ScheduleName(std::string_view text);

}  // namespace heddle
