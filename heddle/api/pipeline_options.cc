// PipelineOptions: the stages and the schedule of a pipeline.
#include <algorithm>

#include "heddle/api/parallel_options.h"
#include "heddle/core/base/division.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/core/pipeline/schedule.h"

namespace heddle {

Result<int64_t> PipelineOptions::MicroBatches(int64_t sequences, int64_t in_file) const {
  if (micro_batches > 0 && micro_batch_size > 0 && micro_batches * micro_batch_size != sequences)
    return Error(Diag::kUsage,
                 "--parallelism.num_pp_microbatches is {} and "
                 "--parallelism.pipeline_parallel_microbatch_size is {}, but a rank has {}; give "
                 "one of them",
                 micro_batches, micro_batch_size, Counted(sequences, "sequence"));
  int64_t size = micro_batch_size > 0 ? micro_batch_size : 1;
  int64_t stated = micro_batches > 0 ? micro_batches : in_file;
  int64_t count = stated > 0 ? stated : sequences / size;
  if (count < 1 || sequences % count != 0 || (stated == 0 && sequences % size != 0))
    return Error(Diag::kModelSize,
                 "--training.local_batch_size is {}, which cannot be divided evenly into "
                 "micro-batches {}",
                 sequences,
                 stated > 0 ? fmt::format("({} of them)", stated)
                            : fmt::format("of {}", Counted(size, "sequence")));
  return count;
}

// Layers are divided evenly, earlier stages first, where the embedding and the output count as
// layers.
Result<std::vector<int64_t>> PipelineOptions::FirstPositions(int64_t layers, int64_t stages) const {
  int64_t first_less = first_less_layers.value_or(1);
  int64_t last_less = last_less_layers.value_or(1);
  int64_t all = layers + first_less + last_less;
  if (stages > all)
    return Error(Diag::kSchedule, "{} for {}, which count as {} with embedding and output",
                 Counted(stages, "stage"), Counted(layers, "layer"), all);
  int64_t least = all / stages;
  if (first_less > least || last_less > least)
    return Error(Diag::kSchedule,
                 "the embedding counts as {} and the output as {} layers, but a stage has {}; use "
                 "fewer stages, or smaller --parallelism.pipeline_parallel_first_stage_less_layers "
                 "and --parallelism.pipeline_parallel_last_stage_less_layers",
                 first_less, last_less, least);
  std::vector<int64_t> firsts{0};
  // Position 0 is the embedding, and layers begin at 1.
  int64_t next = 1 - first_less;
  for (int64_t stage = 0; stage + 1 < stages; ++stage) {
    next += least + (stage < all % stages ? 1 : 0);
    firsts.push_back(std::min(next, layers + 1));
  }
  for (size_t i = 1; i < firsts.size(); ++i) {
    if (firsts[i] <= firsts[i - 1])
      return Error(Diag::kSchedule, "stage {} of {} has no layers; use fewer stages", i - 1,
                   stages);
  }
  return firsts;
}

Result<compile::PlanStages> PipelineOptions::Stages(int64_t layers, int64_t sequences) const {
  compile::PlanStages out;
  out.gather_every = gather_every;
  out.reduce_every = reduce_every;
  int64_t stages = 0;
  int64_t in_file = 0;
  if (schedule_csv.empty()) {
    const ScheduleFamily* family = FindScheduleFamily(schedule);
    if (family == nullptr)
      return Error(Diag::kSchedule,
                   "--parallelism.pipeline_parallel_schedule is `{}`; `heddle schedule` lists the "
                   "schedules",
                   schedule);
    out.schedule = std::string(family->name);
    stages = degree * (family->stages == StagesPerRank::kOne ? 1 : 2);
  } else {
    HEDDLE_TRY(std::string text, ReadFile(schedule_csv));
    HEDDLE_TRY(ParsedSchedule parsed, ParseSchedule(text, schedule_csv));
    out.schedule = FormatRows(parsed.schedule);
    stages = parsed.schedule.stages;
    in_file = parsed.schedule.micro_batches;
  }
  HEDDLE_TRY(out.micro_batches, MicroBatches(sequences, in_file));
  if (layers_per_stage > 0)
    stages = CeilDiv(layers + first_less_layers.value_or(1) + last_less_layers.value_or(1),
                     layers_per_stage);
  if (!balances()) {
    HEDDLE_TRY(out.first_positions, FirstPositions(layers, stages));
  } else if (stages > layers + 2) {
    return Error(Diag::kSchedule, "{} for {} with embedding and output; use fewer stages",
                 Counted(stages, "stage"), Counted(layers, "layer"));
  } else {
    for (int64_t stage = 0; stage < stages; ++stage) out.first_positions.push_back(stage);
  }
  HEDDLE_RETURN_IF_ERROR(FindSchedule(
      out.schedule, {.ranks = degree, .stages = stages, .micro_batches = out.micro_batches}));
  return out;
}

}  // namespace heddle
