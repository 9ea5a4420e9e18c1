// FindPlacements: finds the fastest placements on a cluster, by simulation.
//
// The solver minimizes the sum of kernel and collective times, but most of them overlap in reality.
// So several plans are tried: the solution at full prices, solutions at the exposed prices of each
// kind of collective, and presets. Each runs through its passes and is simulated; the fastest is
// chosen.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/compile/compile.h"
#include "heddle/search/evaluate/evaluate.h"
#include "heddle/search/memory/memory_search.h"
#include "heddle/search/placement/auto_plan.h"

namespace heddle::search {

// Another plan to compare with, such as a preset.
struct RivalPlan {
  std::string name;
  compile::Plan plan;
};

// The memory of a device, which is the budget if the user gives none.
struct DeviceLimit {
  Bytes memory;
  // Allows recomputation to make a step fit.
  bool may_recompute = true;
};

// How a plan is completed.
struct PlanRequest {
  AutoOptions automatic = {};
  // Simulates plans, including the rivals, and chooses the fastest. Otherwise the sum of all costs
  // decides.
  bool tries_plans = false;
  std::vector<RivalPlan> rivals = {};
  // With `tries_plans` and no budget: the memory of a device, into which the chosen plan must fit.
  std::optional<DeviceLimit> limit = {};
  // With a budget: activations may move to the host. False if the host computes.
  bool offloads = true;
  // The name or file of the cluster whose costs the options contain. A found plan states it.
  std::string cluster = "h100-8x";
};

// A captured step, lowered by a plan and cleaned: the stage at which memory decisions are made.
struct LoweredStep {
  Module module;
  // The passes after the memory decisions.
  compile::Pipeline after;
  const price::CostModel* costs;

  // Lowers a step. `options.manager.costs` must be set and outlive this object.
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
  // With a budget: the recomputation policy.
  std::string policy;
};

struct FoundPlacements {
  compile::Plan plan;
  // The solution at full prices. Trials also use other prices.
  AutoPlan solved;
  // Trials in order, each plan once, and the index of the chosen one. Empty if nothing was
  // simulated.
  std::vector<PlanTrial> trials;
  size_t chosen = 0;
  // If the fastest plan did not fit into the device: the budget of the trials, which is the
  // device's memory, and the peak of that plan.
  std::optional<Bytes> budget;
  Bytes too_large;
  // Time of listing and pricing choices, of solving, and of simulating.
  Nanos pricing;
  Nanos solving;
  Nanos trying;
};
nlohmann::ordered_json ToJson(const FoundPlacements& found);
// Formats one line per trial.
std::string FormatTrials(const FoundPlacements& found);

// Completes a plan of a captured module that contains `auto`. Trials use the decisions of `plan`.
// Fails with Diag::kInfeasible if nothing fits.
Result<FoundPlacements> FindPlacements(const Module& module, const compile::Plan& plan,
                                       const PlanRequest& request,
                                       const compile::CompileOptions& options);

}  // namespace heddle::search
