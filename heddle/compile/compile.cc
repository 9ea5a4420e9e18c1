#include "heddle/compile/compile.h"

#include <algorithm>

#include "heddle/base/clock.h"
#include "heddle/base/text.h"
#include "heddle/budget/search.h"
#include "heddle/ir/text/print.h"
#include "heddle/passes/passes.h"
#include "heddle/report/summary.h"

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
    report_.cleaning = clock.Elapsed() - printing_ - report_.parallelize;
    return std::move(report_);
  }

 private:
  // The plan as text, with what `auto` finds.
  Result<std::string> FinishPlan() {
    HEDDLE_TRY(Plan plan, ParsePlan(options_.plan, "plan"));
    if (!plan.automatic) return options_.plan;
    HEDDLE_TRY(Cluster cluster, LoadCluster(options_.cluster));
    HEDDLE_TRY(CostModel model, CostModel::Make(std::move(cluster), {}));
    HEDDLE_TRY(report_.found, FindPlan(module_, plan, options_, model));
    if (report_.found->budget) budget_ = report_.found->budget;
    return FormatPlan(report_.found->plan);
  }

  // Puts the passes that decide about memory in front of the others.
  Status AddMemory(Pipeline& after) {
    std::string text = options_.memory.empty() ? "" : "clean, " + options_.memory;
    if (budget_) {
      HEDDLE_RETURN_IF_ERROR(KeepBudget(after));
      text = kCarryOut;
    }
    if (text.empty()) return Done{};
    HEDDLE_TRY(Pipeline memory, ParsePipeline(text, Passes(), Author::kProgram));
    after.insert(after.begin(), memory.begin(), memory.end());
    return Done{};
  }

  // Marks what is decided for the budget.
  Status KeepBudget(const Pipeline& after) {
    HEDDLE_TRY(Pipeline clean, ParsePipeline("clean", Passes(), Author::kProgram));
    HEDDLE_RETURN_IF_ERROR(Run(clean, options_.manager));
    HEDDLE_TRY(Cluster cluster, LoadCluster(options_.cluster));
    HEDDLE_TRY(CostModel model, CostModel::Make(std::move(cluster), {}));
    HEDDLE_TRY(auto search, MemorySearch::Make(module_, after, model));
    Result<MemoryChoice> within = search->Within(*budget_);
    if (!within.ok()) {
      bool infeasible = within.diagnostics()[0].kind == Diag::kInfeasible;
      if (infeasible && options_.least_peak != nullptr) *options_.least_peak = search->least();
      return std::move(within).failure();
    }
    report_.memory = *std::move(within);
    HEDDLE_TRY(report_.decisions, ListDecisions(search->trials(), report_.memory->marks));
    Module marked = search->trials().Marked(report_.memory->marks);
    module_ = std::move(marked);
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
