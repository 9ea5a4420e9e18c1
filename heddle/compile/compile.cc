#include "heddle/compile/compile.h"

#include <algorithm>

#include "heddle/compile/adjust_pipeline.h"
#include "heddle/compile/passes/memory/memory_passes.h"
#include "heddle/compile/passes/parallel/propagate/propagate.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/plan/marks.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/price/cost/step_summary.h"
#include "heddle/price/sim/simulate.h"
#include "heddle/price/sim/step_memory.h"

namespace heddle::compile {
namespace {

constexpr std::string_view kStages[] = {"captured", "planned", "lowered", "final"};

Pipeline OwnPipeline(std::string_view text) {
  Result<Pipeline> pipeline = ParsePipeline(text, Passes(), Author::kProgram);
  HEDDLE_CHECK(pipeline.ok(), "a pipeline of the program's own");
  return *std::move(pipeline);
}

// The options of unroll-pipeline for groups of micro-batches.
std::string Groups(const PlanStages& stages) {
  std::string out;
  if (stages.gather_every > 0) out += fmt::format(",gather_every={}", stages.gather_every);
  if (stages.reduce_every > 0) out += fmt::format(",reduce_every={}", stages.reduce_every);
  return out;
}

Pipeline PlanningPasses(const Plan& plan) {
  Pipeline passes = OwnPipeline("propagate, insert-redistributions");
  SetPlan(plan, passes[0]);
  return passes;
}

Pipeline LoweringPasses(const Plan& plan) {
  const PlanDecisions& decisions = plan.decisions;
  Pipeline passes = OwnPipeline(
      fmt::format("lower{{reduce_first={}}}, localize{}", decisions.reduce_first.value_or(false),
                  decisions.expert_buffers.value_or(false) ? "{exact_experts=false}" : ""));
  for (const PlanModule& module : plan.modules) {
    if (!module.context_ring) continue;
    Pipeline ring =
        OwnPipeline(fmt::format("ring-attention{{modules={}}}", Quoted(module.pattern)));
    // A plan asks for a ring by name.
    ring[0].named = true;
    passes.push_back(std::move(ring[0]));
  }
  return passes;
}

class Compiler {
 public:
  Compiler(Module& module, const Plan& plan, const CompileOptions& options)
      : module_(module), plan_(plan), options_(options) {}

  Result<CompileReport> Run() {
    report_.notes = options_.notes;
    // Parse the pipeline before any pass runs, so that its errors come first.
    std::vector<std::string> notes;
    HEDDLE_RETURN_IF_ERROR(FinalPasses(plan_.decisions, options_, notes));
    for (const Graph& graph : module_.graphs)
      report_.whole_work.push_back(price::TotalFlops(module_, graph));
    HEDDLE_RETURN_IF_ERROR(Reach(Stage::kCaptured, {}));
    printing_ = {};
    Clock clock;
    HEDDLE_RETURN_IF_ERROR(Reach(Stage::kPlanned, PlanningPasses(plan_)));
    HEDDLE_RETURN_IF_ERROR(Reach(Stage::kLowered, LoweringPasses(plan_)));
    report_.parallelize = clock.Elapsed() - printing_;
    report_.first_after_lowering = report_.passes.size();
    HEDDLE_TRY(Pipeline passes, PassesAfterLowering(module_, plan_, options_, report_.notes));
    HEDDLE_RETURN_IF_ERROR(Reach(Stage::kFinal, passes));
    HEDDLE_RETURN_IF_ERROR(CheckBudget());
    report_.cleaning = clock.Elapsed() - printing_ - report_.parallelize;
    return std::move(report_);
  }

 private:
  Status CheckBudget() {
    const std::optional<Bytes>& budget = plan_.decisions.budget;
    if (!budget) return Done{};
    HEDDLE_CHECK(options_.manager.costs != nullptr, "a budget needs costs");
    const price::CostModel& model = *options_.manager.costs;
    for (const Graph& graph : module_.graphs) {
      HEDDLE_TRY(price::GraphCosts costs, model.Price(module_, graph));
      Bytes values =
          price::MakeTimeline(price::SimGraph(graph, costs), price::TimelineOptions(model, {}))
              .peak;
      Bytes peak = price::MemoryOfStep(graph, model, values).peak;
      if (peak <= *budget) continue;
      return Error(
          Diag::kInfeasible,
          "the plan has a budget of {} per rank, but the step needs {} with the plan's decisions; "
          "find a new plan with --memory.budget, or remove the statement `budget`",
          Format(*budget), Format(peak));
    }
    return Done{};
  }

  Status Run(const Pipeline& passes, ManagerOptions manager) {
    manager.passes_before = static_cast<int64_t>(report_.passes.size());
    HEDDLE_TRY(RunReport one, RunPipeline(module_, passes, manager));
    for (PassRecord& record : one.passes) report_.passes.push_back(std::move(record));
    return Done{};
  }

  Status Reach(Stage stage, const Pipeline& passes) {
    ManagerOptions manager = options_.manager;
    // Planned graphs sum over ranks, which rounds differently.
    manager.allow_rounding = stage == Stage::kPlanned;
    manager.measure &= stage == Stage::kFinal;
    HEDDLE_RETURN_IF_ERROR(Run(passes, manager));
    Clock clock;
    if (options_.print == stage) HEDDLE_RETURN_IF_ERROR(PrintStage());
    printing_ += clock.Elapsed();
    return Done{};
  }

  Status PrintStage() {
    const std::optional<int64_t>& coordinate = options_.print_coordinate;
    std::optional<AxisId> axis = ProgramAxis(module_);
    if (!coordinate || !axis) {
      report_.text = Print(module_);
      return Done{};
    }
    int64_t count = module_.mesh[*axis].size;
    if (*coordinate < 0 || *coordinate >= count)
      return Error(Diag::kUsage, "the pipeline has coordinates 0 to {}, not {}", count - 1,
                   *coordinate);
    report_.text = Print(
        Module{module_.view, module_.mesh, {module_.graphs[static_cast<size_t>(*coordinate)]}});
    return Done{};
  }

  Module& module_;
  const Plan& plan_;
  const CompileOptions& options_;
  CompileReport report_;
  // Time spent printing stages, which is excluded from the reported time.
  Nanos printing_;
};

}  // namespace

std::string_view Name(Stage stage) { return kStages[static_cast<size_t>(stage)]; }

bool HasBackward(const Module& module) {
  return std::ranges::any_of(module.graphs, [](const Graph& graph) {
    return std::ranges::any_of(graph.nodes(),
                               [&](NodeId id) { return graph[id].phase == Phase::kBackward; });
  });
}

bool Recomputes(const Module& module) {
  return std::ranges::any_of(module.graphs, [](const Graph& graph) {
    return std::ranges::any_of(graph.nodes(), [&](NodeId id) {
      return graph[id].result_count > 0 &&
             graph[graph[id].first_result].keep == Keep::kPreferRecompute;
    });
  });
}

Result<Pipeline> FinalPasses(const PlanDecisions& decisions, const CompileOptions& options,
                             std::vector<std::string>& notes) {
  HEDDLE_TRY(Pipeline passes,
             ParsePipeline(decisions.pipeline.value_or(options.pipeline), Passes()));
  if (decisions.stages) {
    // Later micro-batches read weights that earlier ones have gathered, unless each group gathers
    // its own.
    PipelineChanges keep;
    keep.settings.push_back({"stages",
                             {"reshard-after-forward"},
                             "policy",
                             decisions.stages->gather_every > 0 ? "always" : "never"});
    HEDDLE_RETURN_IF_ERROR(AdjustPipeline(keep, Passes(), passes));
  }
  PipelineChanges changes;
  if (decisions.reshard)
    changes.settings.push_back({"--parallelism.fsdp_reshard_after_forward",
                                {"reshard-after-forward"},
                                "policy",
                                *decisions.reshard});
  HEDDLE_TRY(std::vector<std::string> without_effect, AdjustPipeline(changes, Passes(), passes));
  notes.insert(notes.end(), without_effect.begin(), without_effect.end());
  return passes;
}

Result<Pipeline> PassesAfterLowering(Module& lowered, const Plan& plan,
                                     const CompileOptions& options,
                                     std::vector<std::string>& notes) {
  const PlanDecisions& decisions = plan.decisions;
  Pipeline passes;
  // A graph without backward keeps nothing.
  if (!decisions.marks.empty() && HasBackward(lowered)) {
    HEDDLE_RETURN_IF_ERROR(RunPipeline(lowered, OwnPipeline("clean"), options.manager));
    for (Graph& graph : lowered.graphs) HEDDLE_RETURN_IF_ERROR(SetMarks(decisions.marks, graph));
    passes = OwnPipeline(kCarryOut);
  } else if (decisions.checkpoint) {
    // Policy `none` marks nothing, but runs the same passes as a search that chose no policy.
    std::string policy = *decisions.checkpoint == "none"
                             ? std::string(kCarryOut)
                             : CheckpointPipeline(*decisions.checkpoint);
    HEDDLE_TRY(passes, ParsePipeline("clean, " + policy, Passes(), Author::kProgram));
  }
  // Latents of context parallelism are gathered again.
  if (passes.empty() && Recomputes(lowered))
    passes = OwnPipeline(fmt::format("clean, {}", kCarryOut));
  if (decisions.stages) {
    // Each stage is one micro-batch of a clean graph.
    Pipeline unroll = OwnPipeline(
        fmt::format("clean, unroll-pipeline{{schedule={},micro_batches={},stages={}{}}}",
                    Quoted(decisions.stages->schedule), decisions.stages->micro_batches,
                    FormatPositions(*decisions.stages), Groups(*decisions.stages)));
    passes.insert(passes.end(), unroll.begin(), unroll.end());
  }
  HEDDLE_TRY(Pipeline final_passes, FinalPasses(decisions, options, notes));
  passes.insert(passes.end(), final_passes.begin(), final_passes.end());
  return passes;
}

Status Lower(Module& module, const Plan& plan) {
  ManagerOptions manager;
  manager.check = false;
  // Planned graphs sum over ranks, which rounds differently.
  manager.allow_rounding = true;
  HEDDLE_RETURN_IF_ERROR(RunPipeline(module, PlanningPasses(plan), manager));
  manager.allow_rounding = false;
  HEDDLE_RETURN_IF_ERROR(RunPipeline(module, LoweringPasses(plan), manager));
  return Done{};
}

Result<CompileReport> Compile(Module& module, const Plan& plan, const CompileOptions& options) {
  return Compiler(module, plan, options).Run();
}

}  // namespace heddle::compile
