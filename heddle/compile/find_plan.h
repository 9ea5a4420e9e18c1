// FindPlan: the plan that is fastest on a cluster, by simulation.
//
// The solver makes the sum of kernels and collectives small. On a machine most of that runs side by side. So plans are tried: the one
// that is solved with full prices, then others that are solved with the prices that simulation leaves of each kind of collective, and
// rivals of other making. Each goes through the passes that it will go through and is simulated; the fastest stays.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/auto/auto_plan.h"
#include "heddle/compile/step_outcome.h"

namespace heddle {

struct CompileOptions;

// A plan of other making: a preset.
struct RivalPlan {
  std::string name;
  Plan plan;
};

// The memory of a device: the budget of steps for which the user gave none.
struct DeviceLimit {
  Bytes memory;
  // Recomputation may be chosen so that a step fits.
  bool may_recompute = true;
};

struct PlanTrial {
  std::string name;
  Plan plan;
  StepOutcome outcome;
  // With a budget: what is computed again.
  std::string policy;
};

struct FoundPlan {
  Plan plan;
  // With full prices; what was tried is by others' prices, too.
  AutoPlan solved;
  // In the order in which they were tried, each plan once; and which of them it is. None where nothing was simulated.
  std::vector<PlanTrial> trials;
  size_t chosen = 0;
  // If the fastest plan did not fit into the device: the budget of the trials, the device's memory;
  // and the peak of that plan.
  std::optional<Bytes> budget;
  Bytes too_large;
  // Listing and pricing of choices; solving; simulating.
  Nanos pricing;
  Nanos solving;
  Nanos trying;
};
nlohmann::ordered_json ToJson(const FoundPlan& found);
// A line for each trial.
std::string FormatTrials(const FoundPlan& found);

// `module` is captured, and `plan` says `auto`. Fails with Diag::kInfeasible where nothing fits.
Result<FoundPlan> FindPlan(const Module& module, const Plan& plan, const CompileOptions& options,
                           const CostModel& model);

}  // namespace heddle
