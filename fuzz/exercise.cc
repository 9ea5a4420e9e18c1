#include "fuzz/exercise.h"

#include <algorithm>

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

// Checks a rejected text: every diagnostic has a message, and its position is in the text.
Exercised Rejected(const std::string& text, const Diagnostics& diagnostics) {
  if (diagnostics.empty()) return {false, "rejected without a message: " + text};
  auto lines = static_cast<size_t>(std::ranges::count(text, '\n')) + 1;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.message.empty() || diagnostic.line > lines)
      return {false, fmt::format("line {} of {}: {}", diagnostic.line, lines, Format(diagnostic))};
  }
  return {false, ""};
}

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

// Partitions the module over the first axis of a mesh. Diagnostics are allowed, crashes are not.
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

// Checks that an accepted plan prints, and that the printed plan reads back as the same.
Exercised ExercisePlan(const std::string& text) {
  Result<compile::Plan> plan = compile::ParsePlan(text, "input");
  if (!plan.ok()) return Rejected(text, plan.diagnostics());
  std::string printed = compile::FormatPlan(*plan);
  Result<compile::Plan> again = compile::ParsePlan(printed, "printed");
  if (!again.ok()) return {true, "printed, rejected: " + printed + Format(again.diagnostics())};
  if (compile::FormatPlan(*again) != printed)
    return {true, "printed differently again: " + printed};
  return {true, ""};
}

// Checks files of costs: an accepted file must be able to price a step.
Exercised ExerciseCosts(const std::string& text) {
  Result<price::Cluster> cluster = price::ParseCluster(text, "input");
  Result<price::MeasuredCosts> costs = price::ParseCosts(text, "input");
  if (!cluster.ok() && !costs.ok()) {
    Exercised first = Rejected(text, cluster.diagnostics());
    return first.problem.empty() ? Rejected(text, costs.diagnostics()) : first;
  }
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
      options.execution = price::Execution::kCompiled;
      options.fused = true;
      Result<price::CostModel> model = price::CostModel::Make(on, options, measured);
      if (!model.ok()) continue;
      Result<price::Simulation> s = price::Simulate(module, module.graphs[0], *model, {});
      if (s.ok()) (void)FormatSimulation(module, module.graphs[0], *model, *s, true);
    }
  };
  if (cluster.ok()) simulate(*cluster, std::nullopt);
  if (costs.ok()) simulate(*price::LoadCluster("h100-8x"), *costs);
  return {true, ""};
}

// Simulates the module. Returns a violated property, or an empty string.
std::string SimulateAll(const Module& module) {
  static const price::CostModel model = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  std::vector<price::Simulation> all;
  std::vector<TracedGraph> traced;
  all.reserve(module.graphs.size());
  for (const Graph& graph : module.graphs) {
    Result<price::Simulation> one = price::Simulate(module, graph, model, {});
    if (!one.ok()) {
      (void)Format(one.diagnostics());
      return "";
    }
    all.push_back(*std::move(one));
    const price::Simulation& s = all.back();
    traced.push_back({&graph, &s});
    if (s.timeline.exposed + s.timeline.compute.busy != s.timeline.makespan)
      return "exposed and busy time do not add up to the step: " + Print(module);
    (void)FormatTimeline(graph, s);
    (void)FormatSimulation(module, graph, model, s, false);
  }
  (void)FormatTrace(module, traced);
  return "";
}

// Checks that an accepted problem has an answer with the stated cost, or a conflict that explains
// why not.
Exercised ExerciseProblem(const std::string& text) {
  Result<search::ProblemFile> file = search::ParseProblem(text, "input");
  if (!file.ok()) return Rejected(text, file.diagnostics());
  const search::PairwiseProblem& problem = file->problem;
  search::PairwiseAnswer answer =
      search::Solve(problem, {.limit = search::WorkLimit(search::WorkAmount::Work(1))});
  if (answer.objective != search::kForbidden) {
    if (search::Cost(problem, answer.x) != answer.objective) return {true, "another cost: " + text};
    if (answer.bound > answer.objective) return {true, "a bound above the answer: " + text};
  } else if (answer.outcome == search::SolveOutcome::kInfeasible) {
    (void)Format(problem,
                 search::FindConflict(problem, search::WorkLimit(search::WorkAmount::Work(1))));
  }
  return {true, ""};
}

// Checks that a module reads back from its printed text as the same module.
std::string RoundTrip(const Module& module) {
  std::string printed = Print(module);
  Result<Module> again = ParseModule(printed, "printed", Ops());
  if (!again.ok()) return "printed, rejected: " + printed + Format(again.diagnostics());
  if (Print(*again) != printed) return "printed differently again: " + printed;
  if (StructuralHash(*again) != StructuralHash(module)) return "another hash: " + printed;
  if (!Diff(module, *again).empty()) return "differs: " + printed;
  return "";
}

}  // namespace

Exercised Exercise(const std::string& text) {
  if (text.starts_with("heddle plan")) return ExercisePlan(text);
  if (text.starts_with('{') && text.find("\"vars\"") != std::string::npos)
    return ExerciseProblem(text);
  if (text.starts_with('{') || text.starts_with("Group")) return ExerciseCosts(text);
  Result<Module> module = ParseModule(text, "input", Ops());
  if (!module.ok()) return Rejected(text, module.diagnostics());
  if (std::string problem = RoundTrip(*module); !problem.empty()) return {true, problem};
  for (Graph& graph : module->graphs) {
    (void)FormatStats(ComputeStats(*module, graph));
    AskForFacts(*module, graph);
  }
  if (std::string problem = SimulateAll(*module); !problem.empty()) return {true, problem};
  static const compile::Pipeline pipeline = *compile::ParsePipeline("clean", compile::Passes());
  Result<compile::RunReport> report = compile::RunPipeline(*module, pipeline);
  if (!report.ok()) return {true, "not cleaned: " + text + Format(report.diagnostics())};
  if (module->view == View::kGlobal) Spread(*module);
  // Placements that no pass has checked may be rejected with a message.
  static const compile::Pipeline lowering =
      *compile::ParsePipeline("insert-redistributions, lower, localize", compile::Passes());
  if (module->view == View::kGlobal) {
    Result<compile::RunReport> lowered = compile::RunPipeline(*module, lowering);
    if (!lowered.ok()) (void)Format(lowered.diagnostics());
  }
  return {true, ""};
}

}  // namespace heddle
