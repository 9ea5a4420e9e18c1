// From a captured graph and a plan to the graph that runs: what the command line, training and Python share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/base/units.h"
#include "heddle/budget/decisions.h"
#include "heddle/compile/adjust_pipeline.h"
#include "heddle/compile/find_plan.h"
#include "heddle/pass/manager.h"

namespace heddle {

// Where a graph stands: `captured`, `planned` (placements and redistributions), `lowered` (collectives and local sizes), `final`
// (after the pipeline).
enum class Stage : uint8_t { kCaptured, kPlanned, kLowered, kFinal };
std::string_view Name(Stage stage);
Result<Stage> ParseStage(std::string_view name);

struct CompileOptions {
  // The text of a plan, as its author wrote it, so that messages point into it.
  std::string plan;
  // What a step is to be fast on, a name or a file (docs/cost.md): for the pass `overlap`, and for a plan that says `auto`, with what
  // fits into memory.
  std::string cluster = "h100-8x";
  AutoOptions automatic = {};
  // Plans are simulated before one of them is taken, these among them (find_plan.h); otherwise the sum of all costs decides.
  bool tries_plans = false;
  std::vector<RivalPlan> rivals = {};
  // With `tries_plans` and no `budget`: the memory of a device, which the chosen plan must fit into.
  std::optional<DeviceLimit> limit = {};
  // The most that a step may need, if given: `memory` is then found, as what is fastest on `cluster`.
  std::optional<Bytes> budget = {};
  // For the budget, activations may move to the host. False where the host computes.
  bool offloads = true;
  // Unless null, and if nothing fits into the budget: receives the least peak possible.
  std::optional<Bytes>* least_peak = nullptr;
  // What runs between lowering and the pipeline: decisions about memory, on gradients and gathers that stand alone. May be empty.
  std::string memory = {};
  // What runs after lowering, and how it differs from its text.
  std::string pipeline = "clean";
  PipelineChanges changes = {};
  // HSDP: gradients are all-reduced whole and scattered then; FSDP2 scatters first.
  bool reduce_first = false;
  // Rows of experts that ranks share stand in buffers of the most that may come.
  bool expert_buffers = false;
  // Decisions that the plan or a flag states, for the plan of the report. The options above hold
  // them, too, except for `marks` (SetDecisions).
  PlanDecisions decisions = {};
  // What is known already to have no effect, for the report.
  std::vector<std::string> notes = {};
  ManagerOptions manager = {};
  // The stage whose text is wanted, if any.
  std::optional<Stage> print = {};
};

struct CompileReport {
  // The whole plan: with placements that `auto` found, and decisions that a search made. Compiled
  // again with SetDecisions it gives the same graph.
  Plan plan;
  // What `auto` found.
  std::optional<FoundPlan> found;
  // What fits into the budget, and what it decides.
  std::optional<MemoryChoice> memory;
  std::vector<DecisionLine> decisions;
  std::vector<PassRecord> passes;
  // Where in `passes` those after lowering begin. If the manager measures, only these have costs.
  size_t first_after_lowering = 0;
  // What was asked for and has no effect.
  std::vector<std::string> notes;
  // The work of each whole graph, before it was spread over ranks.
  std::vector<Flops> whole_work;
  Nanos parallelize;
  Nanos cleaning;
  // The graph at the stage asked for.
  std::string text;
};

// What is to run for a policy of `checkpoint`, in front of the rest of a pipeline.
std::string CheckpointPipeline(std::string_view policy);

// Sets the options as a plan states. Options that it leaves open stay as they are.
void SetDecisions(const PlanDecisions& decisions, CompileOptions& options);

// Takes `module` through all stages.
Result<CompileReport> Compile(Module& module, const CompileOptions& options);

}  // namespace heddle
