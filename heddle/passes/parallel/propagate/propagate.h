// The plan of the pass `propagate`, given as data.
#pragma once

#include "heddle/pass/pipeline.h"
#include "heddle/plan/plan.h"

namespace heddle {

// `item` is the pass `propagate`.
void SetPlan(const Plan& plan, PipelineItem& item);

}  // namespace heddle
