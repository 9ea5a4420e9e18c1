// Compiles a captured graph with a complete plan to the graph that each rank runs. The wing
// `search` completes plans; this folder searches nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::compile {

// Stages of a graph: `captured`, `planned` (placements and redistributions), `lowered` (collectives
// and local sizes), `final` (after the pipeline).
enum class Stage : uint8_t { kCaptured, kPlanned, kLowered, kFinal };
std::string_view Name(Stage stage);

struct CompileOptions {
  // The passes after lowering if the plan states none: a pipeline's name, or its text.
  std::string pipeline = "clean";
  // For the report: settings that are already known to have no effect.
  std::vector<std::string> notes = {};
  // `costs` prices nodes for passes, and is used to check the plan's budget.
  ManagerOptions manager = {};
  // The stage to print, if any; of a pipeline, only the graph of this coordinate.
  std::optional<Stage> print = {};
  std::optional<int64_t> print_coordinate = {};
};

struct CompileReport {
  std::vector<PassRecord> passes;
  // Index in `passes` of the first pass after lowering. If the manager measures, only passes from
  // there on have costs.
  size_t first_after_lowering = 0;
  // Settings that have no effect.
  std::vector<std::string> notes;
  // Work of each whole graph before it was partitioned over ranks.
  std::vector<Flops> whole_work;
  Nanos parallelize;
  Nanos cleaning;
  // The text of the requested stage.
  std::string text;
};

// Runs all stages on `module`. A budget in the plan is a limit: if the step needs more memory,
// fails with Diag::kInfeasible. The caller makes `costs` from the plan's cluster.
Result<CompileReport> Compile(Module& module, const Plan& plan, const CompileOptions& options);

// Runs the stages up to kLowered, for searches that continue from there. The manager checks
// nothing.
Status Lower(Module& module, const Plan& plan);
// The passes after lowering, with decisions about memory. `notes` gets settings without effect.
Result<Pipeline> FinalPasses(const PlanDecisions& decisions, const CompileOptions& options,
                             std::vector<std::string>& notes);
// All passes after lowering: first passes for memory decisions, then FinalPasses. If the plan marks
// values, runs `clean` on the lowered module and applies the marks.
Result<Pipeline> PassesAfterLowering(Module& lowered, const Plan& plan,
                                     const CompileOptions& options,
                                     std::vector<std::string>& notes);
// Whether the module has a backward phase, so that recomputation can be decided.
bool HasBackward(const Module& module);

}  // namespace heddle::compile
