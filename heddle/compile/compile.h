// From a captured graph and a complete plan to the graph that runs. Searches (find/, search/) complete
// plans; nothing is searched here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::compile {

// Where a graph stands: `captured`, `planned` (placements and redistributions), `lowered` (collectives and local sizes), `final`
// (after the pipeline).
enum class Stage : uint8_t { kCaptured, kPlanned, kLowered, kFinal };
std::string_view Name(Stage stage);

struct CompileOptions {
  // The passes after lowering, if the plan states none: a pipeline's name, or its text.
  std::string pipeline = "clean";
  // For the report: what is already known to have no effect.
  std::vector<std::string> notes = {};
  // Its `costs` price nodes for passes, and check the plan's budget.
  ManagerOptions manager = {};
  // The stage whose text is wanted, if any.
  std::optional<Stage> print = {};
};

struct CompileReport {
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

// Takes `module` through all stages. A budget of the plan is a limit: if the step needs more,
// Diag::kInfeasible. The plan's cluster is not read: the caller makes `costs` of it.
Result<CompileReport> Compile(Module& module, const Plan& plan, const CompileOptions& options);

// The stages up to kLowered, for searches that go on from there. The manager checks nothing.
Status Lower(Module& module, const Plan& plan);
// The passes after lowering and decisions about memory. `notes` gets what has no effect.
Result<Pipeline> FinalPasses(const PlanDecisions& decisions, const CompileOptions& options,
                             std::vector<std::string>& notes);
// All passes after lowering: passes that carry out decisions about memory, then FinalPasses. If the
// plan marks values, this runs `clean` on the lowered module and marks them.
Result<Pipeline> PassesAfterLowering(Module& lowered, const Plan& plan,
                                     const CompileOptions& options,
                                     std::vector<std::string>& notes);
// Whether the module has a backward phase, so that recomputation can be decided.
bool HasBackward(const Module& module);

}  // namespace heddle::compile
