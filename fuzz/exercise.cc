#include "fuzz/exercise.h"

#include "heddle/compile/compile.h"
#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/structural_hash.h"
#include "heddle/core/ir/text/diff.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/report/sim_report.h"
#include "heddle/report/stats.h"
#include "heddle/report/trace.h"
#include "heddle/search/solve/conflict.h"
#include "heddle/search/solve/problem/problem_file.h"
#include "heddle/search/solve/solve.h"

namespace heddle {
namespace {

void AskForFacts(Module& module, Graph& graph) {
  for (NodeId id : graph.nodes()) {
    if (graph[id].op == kOpaqueOp) continue;
    OpArgs args(graph.op(id), graph.attrs(id), module.mesh, graph.types().symbols(),
                OperandTypes(graph, graph.operands(id)));
    Types results;
    for (ValueId v : graph.results(id)) results.push_back(graph.types()[graph.type(v)]);
    (void)InferWork(args, results);
    Result<Factors> factors = InferFactors(args, results);
    if (factors.ok()) (void)Format(*factors);
  }
}

// Splits everything over the first axis of a mesh. What comes of it may be refused, in words.
void Spread(Module module) {
  if (module.mesh.empty()) module.mesh = Mesh({{"a", 2}, {"b", 3}});
  std::string axis = module.mesh.axes()[0].name;
  std::string plan = fmt::format("heddle plan 1\nmesh [{}]\n", Format(module.mesh));
  bool has_params = false;
  bool has_batch = false;
  for (const Graph& graph : module.graphs) {
    for (const Input& input : graph.inputs()) {
      has_params |= input.role == InputRole::kParam;
      has_batch |= input.role == InputRole::kBatch || input.role == InputRole::kTangent;
    }
  }
  if (has_params) plan += fmt::format("param \"**\" store [{}] compute [-]\n", axis);
  if (has_batch) plan += fmt::format("input \"**\" [{}]\n", axis);
  Result<compile::Plan> parsed = compile::ParsePlan(plan, "plan");
  if (!parsed.ok()) {
    (void)Format(parsed.diagnostics());
    return;
  }
  Result<compile::CompileReport> report = compile::Compile(module, *parsed, {.pipeline = ""});
  if (!report.ok()) (void)Format(report.diagnostics());
}

// A plan that can be read is printed, and reads back as it was.
bool ExercisePlan(const std::string& text) {
  Result<compile::Plan> plan = compile::ParsePlan(text, "input");
  if (!plan.ok()) {
    (void)Format(plan.diagnostics());
    return false;
  }
  std::string printed = compile::FormatPlan(*plan);
  Result<compile::Plan> again = compile::ParsePlan(printed, "printed");
  HEDDLE_CHECK(again.ok(), printed + Format(again.diagnostics()));
  HEDDLE_CHECK(compile::FormatPlan(*again) == printed, printed);
  return true;
}

// Files that say what things cost. What can be read must be usable.
bool ExerciseCosts(const std::string& text) {
  Result<price::Cluster> cluster = price::ParseCluster(text, "input");
  if (!cluster.ok()) (void)Format(cluster.diagnostics());
  Result<price::MeasuredCosts> costs = price::ParseCosts(text, "input");
  if (!costs.ok()) (void)Format(costs.diagnostics());
  static const Module module = *ParseModule(
      "heddle 1 local\nmesh [dp=2, tp=2]\ngraph @g(%x: bf16[8,8]) -> (%d) {\n  %a = aten.mm(%x, "
      "%x)\n"
      "  %b! = comm.all_gather(%a, over=[dp], why=tensor)\n  %b = comm.wait(%b!)\n"
      "  %c = aten.exp(%b)\n  %d = aten.neg(%c)\n}\n",
      "module", Ops());
  auto simulate = [&](price::Cluster on, std::optional<price::MeasuredCosts> measured) {
    for (price::CollectiveModel collectives :
         {price::CollectiveModel::kNative, price::CollectiveModel::kNccl}) {
      price::CostOptions options;
      options.collectives = collectives;
      options.fuse = true;
      Result<price::CostModel> model = price::CostModel::Make(on, options, measured);
      if (!model.ok()) continue;
      Result<price::Simulation> s = price::Simulate(module, module.graphs[0], *model, {});
      if (s.ok()) (void)FormatSimulation(module, module.graphs[0], *model, *s, true);
    }
  };
  if (cluster.ok()) simulate(*cluster, std::nullopt);
  if (costs.ok()) simulate(*price::LoadCluster("h100-8x"), *costs);
  return cluster.ok() || costs.ok();
}

void SimulateAll(const Module& module) {
  static const price::CostModel model = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  std::vector<price::Simulation> all;
  std::vector<TracedGraph> traced;
  all.reserve(module.graphs.size());
  for (const Graph& graph : module.graphs) {
    Result<price::Simulation> one = price::Simulate(module, graph, model, {});
    if (!one.ok()) {
      (void)Format(one.diagnostics());
      return;
    }
    all.push_back(*std::move(one));
    const price::Simulation& s = all.back();
    traced.push_back({&graph, &s});
    HEDDLE_CHECK(s.timeline.exposed + s.timeline.compute.busy == s.timeline.makespan, "");
    (void)FormatTimeline(graph, s);
    (void)FormatSimulation(module, graph, model, s, false);
  }
  (void)FormatTrace(module, traced);
}

// A problem that can be read has an answer that costs what it says, or a reason why there is none.
bool ExerciseProblem(const std::string& text) {
  Result<search::ProblemFile> file = search::ParseProblem(text, "input");
  if (!file.ok()) {
    (void)Format(file.diagnostics());
    return false;
  }
  const search::PairwiseProblem& problem = file->problem;
  search::PairwiseAnswer answer =
      search::Solve(problem, {.limit = search::Limit(search::Allowance::Work(1))});
  if (answer.objective != search::kForbidden) {
    HEDDLE_CHECK(search::Cost(problem, answer.x) == answer.objective, text);
    HEDDLE_CHECK(answer.bound <= answer.objective, text);
  } else if (answer.outcome == search::SolveOutcome::kInfeasible) {
    (void)Format(problem, search::FindConflict(problem, search::Limit(search::Allowance::Work(1))));
  }
  return true;
}

}  // namespace

bool Exercise(const std::string& text) {
  if (text.starts_with("heddle plan")) return ExercisePlan(text);
  if (text.starts_with('{') && text.find("\"vars\"") != std::string::npos)
    return ExerciseProblem(text);
  if (text.starts_with('{') || text.starts_with("Group")) return ExerciseCosts(text);
  Result<Module> module = ParseModule(text, "input", Ops());
  if (!module.ok()) {
    (void)Format(module.diagnostics());
    return false;
  }
  std::string printed = Print(*module);
  Result<Module> again = ParseModule(printed, "printed", Ops());
  HEDDLE_CHECK(again.ok(), printed + Format(again.diagnostics()));
  HEDDLE_CHECK(Print(*again) == printed, printed);
  HEDDLE_CHECK(StructuralHash(*again) == StructuralHash(*module), printed);
  HEDDLE_CHECK(Diff(*module, *again).empty(), printed);
  for (Graph& graph : module->graphs) {
    (void)FormatStats(ComputeStats(*module, graph));
    AskForFacts(*module, graph);
  }
  SimulateAll(*module);
  static const compile::Pipeline pipeline = *compile::ParsePipeline("clean", compile::Passes());
  Result<compile::RunReport> report = compile::RunPipeline(*module, pipeline);
  HEDDLE_CHECK(report.ok(), printed + Format(report.diagnostics()));
  if (module->view == View::kGlobal) Spread(*module);
  // Placements that nobody checked may be refused, in words.
  static const compile::Pipeline lowering =
      *compile::ParsePipeline("insert-redistributions, lower, localize", compile::Passes());
  if (module->view == View::kGlobal) {
    Result<compile::RunReport> lowered = compile::RunPipeline(*module, lowering);
    if (!lowered.ok()) (void)Format(lowered.diagnostics());
  }
  return true;
}

}  // namespace heddle
