// heddle plan --diff: the differences between two plans, and the effect of each on a step.
#pragma once

#include "heddle/api/plan.h"
#include "heddle/cli/cli.h"

namespace heddle {

// `files` is `A.plan,B.plan`. With `costs`, simulates the step of the options with both plans, and
// with every difference alone. The exit code says whether the plans differ.
Result<ExitCode> RunPlanDiff(const std::string& files, bool costs, bool json,
                             const PlanOptions& options, const Streams& streams);

}  // namespace heddle
