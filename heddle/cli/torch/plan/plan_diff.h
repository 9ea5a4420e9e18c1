// heddle plan --diff: what two plans say differently, and what each of it does to a step.
#pragma once

#include "heddle/cli/cli.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/sim_flags.h"
#include "heddle/cli/torch/model_flags.h"

namespace heddle {

struct PlanDiffRequest {
  // `A.plan,B.plan`
  std::string files;
  // The step of the model is simulated with both, and with every difference alone.
  bool costs = false;
  bool json = false;
  CostFlags priced;
  OptimizerFlags optimizer;
};

// The exit code says whether they differ.
ExitCode RunPlanDiff(const PlanDiffRequest& request, const ModelFlags& model,
                     const CompileFlags& compile, const Streams& streams);

}  // namespace heddle
