// The plan of the pass `propagate`, given as data.
#pragma once

#include "heddle/compile/manager/pipeline.h"
#include "heddle/compile/plan/plan.h"

namespace heddle::compile {

// `item` is the pass `propagate`.
void SetPlan(const Plan& plan, PipelineItem& item);

}  // namespace heddle::compile
