#include "heddle/compile/compile.h"

#include <algorithm>

#include "heddle/base/clock.h"
#include "heddle/base/text.h"
#include "heddle/budget/search.h"
#include "heddle/ir/text/print.h"
#include "heddle/passes/memory/policy.h"
#include "heddle/passes/passes.h"
#include "heddle/plan/marks.h"
#include "heddle/report/summary.h"
#include "heddle/sim/simulate.h"

namespace heddle {
namespace {

constexpr std::string_view kStages[] = {"captured", "planned", "lowered", "final"};

std::string PlanningPipeline(std::string_view plan) {
  return fmt::format("propagate{{plan={}}}, insert-redistributions", Quoted(plan));
}

std::string LoweringPipeline(const CompileOptions& options) {
  return fmt::format("lower{{reduce_first={}}}, localize{}", options.reduce_first,
                     options.expert_buffers ? "{exact_experts=false}" : "");
}

bool HasBackward(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(),
                             [&](NodeId id) { return graph[id].phase == Phase::kBackward; });
}

class Compiler {
 public:
  Compiler(Module& module, const CompileOptions& options)
      : module_(module), options_(options), budget_(options.budget) {}

  Result<CompileReport> Run() {
    HEDDLE_TRY(std::string plan, FinishPlan());
    HEDDLE_TRY(Pipeline planning,
               ParsePipeline(PlanningPipeline(plan), Passes(), Author::kProgram));
    HEDDLE_TRY(Pipeline lowering,
               ParsePipeline(LoweringPipeline(options_), Passes(), Author::kProgram));
    HEDDLE_TRY(Pipeline after, ParsePipeline(options_.pipeline, Passes()));
    HEDDLE_TRY(report_.notes, AdjustPipeline(options_.changes, Passes(), after));
    report_.notes.insert(report_.notes.begin(), options_.notes.begin(), options_.notes.end());
    for (std::string_view pass : {"overlap", "async-tensor-parallel"})
      HEDDLE_RETURN_IF_ERROR(SetWhereDefault(pass, "cluster", options_.cluster, after));
    for (const Graph& graph : module_.graphs)
      report_.whole_work.push_back(TotalFlops(module_, graph));
    HEDDLE_RETURN_IF_ERROR(Reach(Stage::kCaptured, {}));
    printing_ = {};
    Clock clock;
    HEDDLE_RETURN_IF_ERROR(Reach(Stage::kPlanned, planning));
    HEDDLE_RETURN_IF_ERROR(Reach(Stage::kLowered, lowering));
    report_.parallelize = clock.Elapsed() - printing_;
    report_.first_after_lowering = report_.passes.size();
    HEDDLE_RETURN_IF_ERROR(AddMemory(after));
    HEDDLE_RETURN_IF_ERROR(Reach(Stage::kFinal, after));
    HEDDLE_RETURN_IF_ERROR(CheckBudget());
    report_.cleaning = clock.Elapsed() - printing_ - report_.parallelize;
    return std::move(report_);
  }

 private:
  // The plan as text, with what `auto` finds.
  Result<std::string> FinishPlan() {
    HEDDLE_TRY(Plan plan, ParsePlan(options_.plan, "plan"));
    // Plans are told apart by their placements while one is looked for.
    plan.decisions = {};
    report_.plan = plan;
    report_.plan.decisions = options_.decisions;
    if (!plan.automatic) return options_.plan;
    HEDDLE_TRY(Cluster cluster, LoadCluster(options_.cluster));
    HEDDLE_TRY(CostModel model, CostModel::Make(std::move(cluster), {}));
    HEDDLE_TRY(report_.found, FindPlan(module_, plan, options_, model));
    if (report_.found->budget) budget_ = report_.found->budget;
    report_.plan = report_.found->plan;
    report_.plan.decisions = options_.decisions;
    if (options_.tries_plans) StatePipeline();
    return FormatPlan(report_.found->plan);
  }

  // A search tried plans with this pipeline, on this cluster: they are part of the answer.
  void StatePipeline() {
    PlanDecisions& decisions = report_.plan.decisions;
    if (!decisions.pipeline) decisions.pipeline = options_.pipeline;
    if (!decisions.cluster) decisions.cluster = options_.cluster;
  }

  // Puts the passes that decide about memory in front of the others.
  Status AddMemory(Pipeline& after) {
    std::string text = options_.memory.empty() ? "" : "clean, " + options_.memory;
    // A graph without backward has nothing to keep.
    bool has_backward = std::ranges::any_of(module_.graphs, HasBackward);
    if (!options_.decisions.marks.empty() && has_backward) {
      HEDDLE_RETURN_IF_ERROR(Clean());
      for (Graph& graph : module_.graphs)
        HEDDLE_RETURN_IF_ERROR(SetMarks(options_.decisions.marks, graph));
      text = kCarryOut;
    } else if (budget_ && has_backward) {
      HEDDLE_RETURN_IF_ERROR(KeepBudget(after));
      text = kCarryOut;
    }
    if (text.empty()) return Done{};
    HEDDLE_TRY(Pipeline memory, ParsePipeline(text, Passes(), Author::kProgram));
    after.insert(after.begin(), memory.begin(), memory.end());
    return Done{};
  }

  Status Clean() {
    HEDDLE_TRY(Pipeline clean, ParsePipeline("clean", Passes(), Author::kProgram));
    return Run(clean, options_.manager);
  }

  // Marks what is decided for the budget.
  Status KeepBudget(const Pipeline& after) {
    HEDDLE_RETURN_IF_ERROR(Clean());
    HEDDLE_TRY(Cluster cluster, LoadCluster(options_.cluster));
    HEDDLE_TRY(CostModel model, CostModel::Make(std::move(cluster), {}));
    HEDDLE_TRY(auto search, MemorySearch::Make(module_, after, model, options_.offloads));
    Result<MemoryChoice> within = search->Within(*budget_);
    if (!within.ok()) {
      bool infeasible = within.diagnostics()[0].kind == Diag::kInfeasible;
      if (infeasible && options_.least_peak != nullptr) *options_.least_peak = search->least();
      return std::move(within).failure();
    }
    report_.memory = *std::move(within);
    HEDDLE_TRY(report_.decisions, ListDecisions(search->trials(), report_.memory->marks));
    StateMemory(*report_.memory);
    Module marked = search->trials().Marked(report_.memory->marks);
    module_ = std::move(marked);
    return Done{};
  }

  // The plan states a policy by its name, and other answers node by node.
  void StateMemory(const MemoryChoice& choice) {
    PlanDecisions& decisions = report_.plan.decisions;
    StatePipeline();
    decisions.budget = budget_;
    if (CheckpointPolicy::Parse(choice.policy).ok())
      decisions.checkpoint = choice.policy;
    else
      decisions.marks = StatementsOf(module_.graphs[0], choice.marks);
  }

  // A plan that was found under a budget keeps to it, whatever step it is used for.
  Status CheckBudget() {
    const std::optional<Bytes>& budget = options_.decisions.budget;
    if (!budget || budget_) return Done{};
    HEDDLE_TRY(Cluster cluster, LoadCluster(options_.cluster));
    HEDDLE_TRY(CostModel model, CostModel::Make(std::move(cluster), {}));
    for (const Graph& graph : module_.graphs) {
      HEDDLE_TRY(GraphCosts costs, model.Price(module_, graph));
      Bytes peak = MakeTimeline(SimGraph(graph, costs), TimelineOptions(model, {})).peak;
      if (peak <= *budget) continue;
      return Error(Diag::kInfeasible,
                   "the plan has a budget of {} for each rank, and this step takes {} with its "
                   "decisions; find a plan for this step with --memory.budget, or remove the "
                   "statement `budget`",
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
    // Whoever gives a plan asks for sums over ranks, which round differently.
    manager.allow_rounding = stage == Stage::kPlanned;
    manager.measure &= stage == Stage::kFinal;
    HEDDLE_RETURN_IF_ERROR(Run(passes, manager));
    Clock clock;
    if (options_.print == stage) report_.text = Print(module_);
    printing_ += clock.Elapsed();
    return Done{};
  }

  Module& module_;
  const CompileOptions& options_;
  // That of the options, or the one that the plan was found with.
  std::optional<Bytes> budget_;
  CompileReport report_;
  // Time that went into texts, which is nobody's to pay.
  Nanos printing_;
};

}  // namespace

std::string CheckpointPipeline(std::string_view policy) {
  return fmt::format("checkpoint{{policy={}}}, rematerialize", Quoted(policy));
}

void SetDecisions(const PlanDecisions& decisions, CompileOptions& options) {
  options.decisions = decisions;
  if (decisions.cluster) options.cluster = *decisions.cluster;
  if (decisions.pipeline) {
    options.pipeline = *decisions.pipeline;
    options.changes = {};
  }
  if (decisions.reshard)
    options.changes.settings.push_back({"--parallelism.fsdp_reshard_after_forward",
                                        {"reshard-after-forward"},
                                        "policy",
                                        *decisions.reshard});
  if (decisions.reduce_first) options.reduce_first = *decisions.reduce_first;
  if (decisions.expert_buffers) options.expert_buffers = *decisions.expert_buffers;
  // Without a policy nothing is marked, but the passes are those of a search that chose none.
  if (decisions.checkpoint)
    options.memory = *decisions.checkpoint == "none" ? std::string(kCarryOut)
                                                     : CheckpointPipeline(*decisions.checkpoint);
  if (decisions.budget && !decisions.decides_memory()) options.budget = decisions.budget;
}

std::string_view Name(Stage stage) { return kStages[static_cast<size_t>(stage)]; }

Result<Stage> ParseStage(std::string_view name) {
  auto at = std::ranges::find(kStages, name);
  if (at != std::end(kStages)) return static_cast<Stage>(at - std::begin(kStages));
  return Error(Diag::kBadChoice, "`{}` is not a stage; there are {}{}", name, Join(kStages, ", "),
               NearestHint(name, kStages));
}

Result<CompileReport> Compile(Module& module, const CompileOptions& options) {
  return Compiler(module, options).Run();
}

}  // namespace heddle
