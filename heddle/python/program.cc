#include "heddle/python/program.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nlohmann/json.hpp>

#include "heddle/compile/passes/passes.h"
#include "heddle/core/ir/program.h"
#include "heddle/import/import.h"
#include "heddle/price/cost/step_summary.h"
#include "heddle/python/errors.h"
#include "heddle/python/graph.h"
#include "heddle/python/plan.h"
#include "heddle/report/comparison.h"
#include "heddle/report/html/page.h"
#include "heddle/report/sim_report.h"
#include "heddle/report/summary.h"
#include "heddle/report/trace.h"
#include "heddle/search/compile_graph.h"
#include "heddle/search/evaluate/simulated_module.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace heddle::python {
namespace {

// A program: the graph of a rank, and what made it.
struct Compiled {
  GraphView graph;
  std::optional<PlanView> plan;
  std::string name;
  std::string cluster;
  std::vector<compile::PassRecord> passes = {};
  std::vector<std::string> notes = {};
  // Work of the step before it was spread over ranks; 0 if unknown.
  Flops whole_work = {};
  std::shared_ptr<const price::CostModel> costs = {};
};

struct Simulated {
  search::SimulatedModule step;
  Flops whole_work;
  std::shared_ptr<const price::CostModel> costs;

  const price::Simulation& simulation() const { return step.simulations[0]; }
  const heddle::Graph& graph() const { return step.module.graphs[0]; }
  SimulatedStep described() const { return StepOf(step, 0, *costs); }
};

// A pass that a Python function makes of a graph.
struct PythonPass {
  std::string name;
  nb::object function;
  compile::PassDef def;
};

Result<Changed> RunPythonPass(Module& module, const void* options, compile::PassContext&) {
  nb::gil_scoped_acquire lock;
  const auto& pass = *static_cast<const PythonPass*>(options);
  GraphView before = ViewOf(module);
  nb::object returned = pass.function(before);
  if (!nb::isinstance<GraphView>(returned)) {
    nb::object type = nb::type_name(returned.type());
    Raise("PassError", {MakeDiagnostic(Diag::kUsage, "pass {} gives a {}, expected a Graph",
                                       pass.name, nb::cast<std::string>(type))});
  }
  const Module& after = nb::cast<const GraphView&>(returned).module();
  if (after == module) return Changed::kNo;
  module = after;
  return Changed::kYes;
}

compile::PipelineItem ItemOf(const std::string& name, const std::string& numerics,
                             nb::object function) {
  auto pass = std::make_shared<PythonPass>(PythonPass{name, std::move(function), {}});
  pass->def = {.name = pass->name, .summary = "", .run = RunPythonPass};
  // No option is printed, so none is asked for.
  pass->def.make_options = []() -> std::shared_ptr<void> { return nullptr; };
  pass->def.numerics = numerics == "exact"        ? compile::Numerics::kExact
                       : numerics == "regrouping" ? compile::Numerics::kRegrouping
                                                  : compile::Numerics::kRounding;
  return {.pass = &pass->def, .options = pass, .repeated = {}, .named = true};
}

// What users choose, by keyword.
struct Settings {
  std::optional<std::string> pipeline;
  std::optional<std::string> cluster;
  std::string costs;
  std::string memory;
  std::string checkpoint;
};

search::GraphJob JobOf(const Settings& settings) {
  search::GraphJob job;
  job.settings.usual_pipeline = "fsdp";
  job.settings.passes = settings.pipeline.value_or("");
  job.settings.memory_budget = settings.memory;
  job.settings.checkpoint_mode = settings.checkpoint;
  job.chose_cluster = settings.cluster.has_value();
  if (settings.cluster) job.prices.cluster = *settings.cluster;
  job.prices.costs = settings.costs;
  job.request.tries_plans = true;
  job.measure = true;
  return job;
}

Result<Compiled> CompileGlobal(const GraphView& graph, const PlanView& plan,
                               const Settings& settings) {
  search::GraphJob job = JobOf(settings);
  job.plan = plan.plan;
  std::string name = job.settings.PipelineName(plan.plan.decisions);
  Module module = graph.module();
  HEDDLE_TRY(search::CompiledGraph done, search::CompileGraph(module, job));
  return Compiled{.graph = ViewOf(std::move(module)),
                  .plan = ViewOf(std::move(done.found.plan)),
                  .name = std::move(name),
                  .cluster = std::move(done.cluster),
                  .passes = std::move(done.report.passes),
                  .notes = std::move(done.report.notes),
                  .whole_work = done.report.whole_work[0],
                  .costs = std::make_shared<const price::CostModel>(std::move(done.costs))};
}

Result<std::vector<compile::PassRecord>> RunPasses(Module& module, const std::string& pipeline,
                                                   const price::CostModel& costs, bool measure) {
  HEDDLE_TRY(compile::Pipeline parsed, compile::ParsePipeline(pipeline, compile::Passes()));
  compile::ManagerOptions options;
  options.costs = &costs;
  options.measure = measure;
  HEDDLE_TRY(compile::RunReport report, compile::RunPipeline(module, parsed, options));
  return std::move(report.passes);
}

// A program after further passes.
Result<Compiled> RunMore(const Compiled& before, const compile::Pipeline& pipeline) {
  Compiled program = before;
  Module module = before.graph.module();
  compile::ManagerOptions options;
  options.costs = program.costs.get();
  options.measure = true;
  options.passes_before = static_cast<int64_t>(program.passes.size());
  HEDDLE_TRY(compile::RunReport report, compile::RunPipeline(module, pipeline, options));
  program.passes.insert(program.passes.end(), report.passes.begin(), report.passes.end());
  program.graph = ViewOf(std::move(module));
  return program;
}

Result<Compiled> CompileLocal(const GraphView& graph, const Settings& settings) {
  if (graph.module().view == View::kGlobal)
    return Error(Diag::kPassView,
                 "@{} is a global graph, of the whole step; a program of it needs a plan",
                 graph.graph().name());
  search::GraphJob job = JobOf(settings);
  HEDDLE_TRY(price::CostModel costs, job.prices.Load());
  Compiled out{.graph = graph,
               .plan = std::nullopt,
               .name = settings.pipeline.value_or(graph.graph().name()),
               .cluster = job.prices.cluster};
  if (settings.pipeline) {
    Module module = graph.module();
    HEDDLE_TRY(out.passes, RunPasses(module, *settings.pipeline, costs, true));
    out.graph = ViewOf(std::move(module));
  }
  out.costs = std::make_shared<const price::CostModel>(std::move(costs));
  return out;
}

nb::dict ToPython(const compile::PassRecord& record, bool measured) {
  nb::dict stats;
  for (const auto& [name, count] : record.stats) stats[name.c_str()] = count;
  nb::list remarks;
  for (const compile::Remark& remark : record.remarks) remarks.append(Format(remark));
  nb::dict out;
  out["number"] = record.number;
  out["name"] = record.pass;
  out["changed"] = record.changed == Changed::kYes;
  out["seconds"] = Seconds(record.time);
  out["counts"] = stats;
  out["remarks"] = remarks;
  if (!measured) return out;
  out["launches"] = nb::make_tuple(record.before.launches, record.after.launches);
  out["peak_memory"] = nb::make_tuple(record.before.peak.value, record.after.peak.value);
  return out;
}

Result<Simulated> SimulateProgram(const Compiled& program, std::optional<double> slowdown,
                                  std::optional<int64_t> tokens) {
  price::SimulateOptions options;
  if (slowdown && !(*slowdown >= 0 && *slowdown <= 10))
    return Error(Diag::kBadChoice, "slowdown is {}, expected 0 to 10", *slowdown);
  if (slowdown) options.slowdown = static_cast<int64_t>(*slowdown * 1000 + 0.5);
  if (tokens && *tokens < 1)
    return Error(Diag::kBadChoice, "tokens is {}, expected at least 1", *tokens);
  options.tokens = tokens;
  HEDDLE_TRY(search::SimulatedModule step,
             search::SimulateModule(program.name, program.graph.module(), *program.costs, options));
  step.passes = program.passes;
  return Simulated{std::move(step), program.whole_work, program.costs};
}

template <typename Step>
void BindSimulated(Step& simulated) {
  simulated
      .def(
          "report",
          [](const Simulated& self) {
            return FromJson(Unlocked([&] {
              return ToJson(self.step.module, self.graph(), *self.costs, self.simulation()).dump();
            }));
          },
          nb::sig("def report(self) -> dict[str, typing.Any]"))
      .def(
          "memory",
          [](const Simulated& self) {
            return FromJson(Unlocked([&] {
              return ToJson(price::Summarize(self.step.module, self.graph(), self.whole_work))
                  .dump();
            }));
          },
          nb::sig("def memory(self) -> dict[str, typing.Any]"))
      .def(
          "text",
          [](const Simulated& self, bool color) {
            return FormatSimulation(self.step.module, self.graph(), *self.costs, self.simulation(),
                                    color);
          },
          "color"_a = false)
      .def("timeline",
           [](const Simulated& self) { return FormatTimeline(self.graph(), self.simulation()); })
      .def("trace",
           [](const Simulated& self) {
             return Unlocked([&] {
               return FormatTrace(self.step.module, {{&self.graph(), &self.simulation()}});
             });
           })
      .def(
          "page",
          [](const Simulated& self, const Simulated* before) {
            return Unlocked([&] {
              ReportedGraph graph;
              if (before != nullptr) graph.push_back({before->described(), before->step.passes});
              graph.push_back({self.described(), self.step.passes});
              return FormatPage({graph});
            });
          },
          "before"_a = nb::none())
      .def(
          "comparison",
          [](const Simulated& self, const Simulated& before) {
            auto [text, json] = Unlocked([&] {
              StepComparison compared = Compare(before.described(), self.described());
              return std::pair(FormatComparison(compared, false), ToJson(compared).dump());
            });
            return std::pair(text, FromJson(json));
          },
          nb::sig("def comparison(self, before: Simulated) -> tuple[str, dict[str, typing.Any]]"))
      .def_prop_ro("name", [](const Simulated& self) { return self.step.name; });
}

}  // namespace

void BindProgram(nb::module_& module) {
  auto simulated = nb::class_<Simulated>(module, "Simulated");
  BindSimulated(simulated);
  nb::class_<Compiled>(module, "Compiled")
      .def_ro("graph", &Compiled::graph)
      .def_ro("plan", &Compiled::plan)
      .def_ro("name", &Compiled::name)
      .def_ro("cluster", &Compiled::cluster)
      .def_ro("notes", &Compiled::notes)
      .def(
          "passes",
          [](const Compiled& self) {
            nb::list out;
            for (const compile::PassRecord& record : self.passes)
              out.append(ToPython(record, record.after.peak.value > 0));
            return out;
          },
          nb::sig("def passes(self) -> list[dict[str, typing.Any]]"))
      .def(
          "simulate",
          [](const Compiled& self, std::optional<double> slowdown, std::optional<int64_t> tokens) {
            return Take(Unlocked([&] { return SimulateProgram(self, slowdown, tokens); }),
                        "RunError");
          },
          "slowdown"_a = nb::none(), "tokens"_a = nb::none());
  module.def(
      "run_python_pass",
      [](const GraphView& graph, const std::string& name, const std::string& numerics,
         nb::object function, const std::string& cluster) {
        compile::Pipeline pipeline = {ItemOf(name, numerics, std::move(function))};
        return ViewOf(Take(Unlocked([&]() -> Result<Module> {
                             HEDDLE_TRY(price::CostModel costs, CostsOf(cluster));
                             Module out = graph.module();
                             compile::ManagerOptions options;
                             options.costs = &costs;
                             HEDDLE_TRY(compile::RunReport report,
                                        compile::RunPipeline(out, pipeline, options));
                             return out;
                           }),
                           "PassError"));
      },
      "graph"_a, "name"_a, "numerics"_a, "function"_a, "cluster"_a,
      nb::sig("def run_python_pass(graph: Graph, name: str, numerics: str, function: "
              "collections.abc.Callable[[Graph], Graph], cluster: str) -> Graph"));
  module.def(
      "then_python_pass",
      [](const Compiled& before, const std::string& name, const std::string& numerics,
         nb::object function) {
        compile::Pipeline pipeline = {ItemOf(name, numerics, std::move(function))};
        return Take(Unlocked([&] { return RunMore(before, pipeline); }), "PassError");
      },
      "program"_a, "name"_a, "numerics"_a, "function"_a,
      nb::sig("def then_python_pass(program: Compiled, name: str, numerics: str, function: "
              "collections.abc.Callable[[Graph], Graph]) -> Compiled"));
  module.def(
      "then_passes",
      [](const Compiled& before, const std::string& pipeline) {
        return Take(Unlocked([&]() -> Result<Compiled> {
                      HEDDLE_TRY(compile::Pipeline parsed,
                                 compile::ParsePipeline(pipeline, compile::Passes()));
                      return RunMore(before, parsed);
                    }),
                    "PassError");
      },
      "program"_a, "pipeline"_a);
  module.def(
      "compile_graph",
      [](const GraphView& graph, const PlanView* plan, std::optional<std::string> pipeline,
         std::optional<std::string> cluster, const std::string& costs, const std::string& memory,
         const std::string& checkpoint) {
        Settings settings{std::move(pipeline), std::move(cluster), costs, memory, checkpoint};
        if (plan == nullptr)
          return Take(Unlocked([&] { return CompileLocal(graph, settings); }), "PassError");
        return Take(Unlocked([&] { return CompileGlobal(graph, *plan, settings); }), "PlanError");
      },
      "graph"_a, "plan"_a.none(), nb::kw_only(), "pipeline"_a = nb::none(),
      "cluster"_a = nb::none(), "costs"_a = "", "memory"_a = "", "checkpoint"_a = "");
  module.def(
      "run_pipeline",
      [](const GraphView& graph, const std::string& pipeline, const std::string& cluster) {
        return ViewOf(Take(Unlocked([&]() -> Result<Module> {
                             HEDDLE_TRY(price::CostModel costs, CostsOf(cluster));
                             Module out = graph.module();
                             HEDDLE_RETURN_IF_ERROR(RunPasses(out, pipeline, costs, false));
                             return out;
                           }),
                           "PassError"));
      },
      "graph"_a, "pipeline"_a, nb::kw_only(), "cluster"_a = "h100-8x",
      "Runs passes over a graph and returns the result: what `heddle opt` does.\n\n"
      "`pipeline` is a text as `clean, repeat{dce, cse}` (docs/passes.md). `cluster` prices nodes "
      "for\npasses that ask for it.\n\n"
      ">>> graph = heddle.Graph.parse('''heddle 1 local\n"
      "... graph @g(%x: f32[4,6]) -> (%x) {\n"
      "...   %a = aten.t(%x)\n"
      "... }''')\n"
      ">>> len(heddle.run_pipeline(graph, 'dce'))\n"
      "0\n");
  module.def(
      "read_file",
      [](const std::string& path, const std::string& mesh,
         const std::vector<std::pair<std::string, std::string>>& groups, int64_t hint, bool global,
         const std::vector<std::string>& params) {
        ImportOptions options{mesh, groups, hint, global, params};
        Imported imported = Take(Unlocked([&] { return ImportFile(path, options); }));
        return ViewOf(std::move(imported.module), std::move(imported.remarks));
      },
      "path"_a, "mesh"_a, "groups"_a, "hint"_a, "global_"_a, "params"_a);
}

}  // namespace heddle::python
