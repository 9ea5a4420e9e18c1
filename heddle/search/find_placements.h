// FindPlacements: the placements that are fastest on a cluster, by simulation.
//
// The solver makes the sum of kernels and collectives small. On a machine most of that runs side by side. So plans are tried: the one
// that is solved with full prices, then others that are solved with the prices that simulation leaves of each kind of collective, and
// rivals of other making. Each goes through the passes that it will go through and is simulated; the fastest stays.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/compile/compile.h"
#include "heddle/search/evaluate/evaluate.h"
#include "heddle/search/memory/memory_search.h"
#include "heddle/search/placement/auto_plan.h"

namespace heddle::search {

// A plan of other making: a preset.
struct RivalPlan {
  std::string name;
  compile::Plan plan;
};

// The memory of a device: the budget of steps for which the user gave none.
struct DeviceLimit {
  Bytes memory;
  // Recomputation may be chosen so that a step fits.
  bool may_recompute = true;
};

// How a plan is completed.
struct PlanRequest {
  AutoOptions automatic = {};
  // Plans are simulated before one of them is taken, the rivals among them; otherwise the sum of all
  // costs decides.
  bool tries_plans = false;
  std::vector<RivalPlan> rivals = {};
  // With `tries_plans` and no budget: the memory of a device, which the chosen plan must fit into.
  std::optional<DeviceLimit> limit = {};
  // For a budget, activations may move to the host. False if the host computes.
  bool offloads = true;
  // The name or file of the cluster whose costs the options have; a found plan states it.
  std::string cluster = "h100-8x";
};

// A captured step, lowered by a plan and cleaned: where decisions about memory are made.
struct LoweredStep {
  Module module;
  // The passes that follow these decisions.
  compile::Pipeline after;
  const price::CostModel* costs;

  // `options.manager.costs` is given, and outlives this.
  static Result<LoweredStep> Make(const Module& captured, const compile::Plan& plan,
                                  const compile::CompileOptions& options);
  // This object must outlive the search.
  Result<std::unique_ptr<MemorySearch>> Search(bool offloads) const;
};

struct PlanTrial {
  std::string name;
  compile::Plan plan;
  StepOutcome outcome;
  price::MoveShares shares;
  // With a budget: what is computed again.
  std::string policy;
};

struct FoundPlacements {
  compile::Plan plan;
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
nlohmann::ordered_json ToJson(const FoundPlacements& found);
// A line for each trial.
std::string FormatTrials(const FoundPlacements& found);

// `module` is captured, and `plan` says `auto`. Plans are tried with the decisions of `plan`. Fails
// with Diag::kInfeasible if nothing fits.
Result<FoundPlacements> FindPlacements(const Module& module, const compile::Plan& plan,
                                       const PlanRequest& request,
                                       const compile::CompileOptions& options);

}  // namespace heddle::search
