// Times of a pipeline schedule whose actions have known costs.
#pragma once

#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/pipeline/schedule.h"

namespace heddle::price {

// One micro-batch of one stage. B takes input_gradient + weight_gradient.
struct StageCost {
  Nanos forward;
  Nanos input_gradient;
  Nanos weight_gradient;
  // Memory from F to W or B, if known.
  Bytes activations = {};
};

struct PipelineCosts {
  std::vector<StageCost> stages;
  // A transfer to the next or previous stage, if that is on another rank. It occupies no rank.
  Nanos hop;
};

Nanos CostOf(const PipelineAction& action, const PipelineCosts& costs);
// The time of a transfer between a stage and the next one.
Nanos HopAfter(int64_t stage, const std::vector<int32_t>& rank_of_stage,
               const PipelineCosts& costs);

struct RankTimes {
  // By action.
  std::vector<Nanos> begin;
  std::vector<Nanos> end;
  Nanos busy;
  // Peak number of stage activations alive, from F to W or B.
  int64_t most_in_flight = 0;
  // Peak of their memory.
  Bytes most_activations;
};

struct PipelineTimes {
  std::vector<RankTimes> ranks;
  // From the first action of any rank to the last.
  Nanos step;
  // Transfers between ranks.
  int64_t messages = 0;

  // Idle time of all ranks as a share of the step.
  double bubble() const;
};

// Each rank runs its actions in order, each as soon as its inputs have arrived. A pair waits for
// the inputs of both, and its results leave when both are done; overlap within it saves no time.
// The schedule must be valid.
PipelineTimes FindPipelineTimes(const PipelineSchedule& schedule, const PipelineCosts& costs);

}  // namespace heddle::price
