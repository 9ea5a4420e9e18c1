#include "heddle/python/plan.h"

#include <algorithm>

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "heddle/compile/plan/patterns.h"
#include "heddle/compile/plan/plan_diff.h"
#include "heddle/core/base/file.h"
#include "heddle/core/ir/mesh_flag.h"
#include "heddle/python/errors.h"
#include "heddle/search/compile_graph.h"
#include "heddle/search/explain_storage.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace heddle::python {
namespace {

constexpr const char* kPlanError = "PlanError";

PlanView ParseView(const std::string& text, const std::string& file) {
  return {Take(Unlocked([&] { return compile::ParsePlan(text, file); }), kPlanError), text};
}

Result<compile::Flow> ParseFlow(const std::string& name) {
  if (name.empty()) return compile::Flow::kNone;
  if (name == "residual") return compile::Flow::kResidual;
  if (name == "whole") return compile::Flow::kWhole;
  if (name == "logits") return compile::Flow::kLogits;
  return Error(Diag::kBadChoice, "a flow is `{}`, expected residual, whole or logits", name);
}

// The axis `ep` shares experts unless its role is stated. Presets make such axes themselves, so
// its name alone has no role.
Mesh WithExpertAxis(const Mesh& mesh) {
  std::vector<MeshAxis> axes(mesh.axes().begin(), mesh.axes().end());
  for (MeshAxis& axis : axes) {
    if (axis.name == "ep" && axis.role == AxisRole::kNone) axis.role = AxisRole::kExpert;
  }
  return Mesh(std::move(axes));
}

// Each axis is of the preset that has its role. An axis that shares experts also splits the batch
// and all other parameters.
Result<compile::PresetOptions> PresetsOf(const Mesh& mesh) {
  compile::PresetOptions options;
  for (const MeshAxis& axis : mesh.axes()) {
    if (axis.role == AxisRole::kExpert) {
      if (!options.experts.empty())
        return Error(Diag::kAxisTwice, "axis `{}` has the same role as `{}`, {}", axis.name,
                     options.experts[0], Name(axis.role));
      options.experts = {axis.name};
      continue;
    }
    auto has_role = [&](const compile::Preset* preset) { return preset->role == axis.role; };
    auto preset = std::ranges::find_if(compile::Presets(), has_role);
    if (preset == compile::Presets().end())
      return Error(Diag::kMeshSize,
                   "axis `{}` has no role in a preset; call it dp_replicate, dp, ep or tp, state "
                   "its role, as in `rows=2 tensor`, or let `auto` place the step",
                   axis.name);
    if (!options.axes.emplace((*preset)->name, axis.name).second)
      return Error(Diag::kAxisTwice, "axis `{}` has the same role as `{}`, {}", axis.name,
                   options.axes.at(std::string((*preset)->name)), Name(axis.role));
  }
  if (options.experts.empty()) return options;
  bool inner = !options.axes.emplace("shard", options.experts[0]).second;
  if (inner) options.inner_shard = options.experts[0];
  return options;
}

// Fails if ranks are to share experts, and no rule names the experts or the modules that have them.
Status CheckExperts(const heddle::Graph& graph, const compile::ParallelRules& rules,
                    const compile::PresetOptions& presets) {
  if (presets.experts.empty()) return Done{};
  bool has_stacks = std::ranges::any_of(graph.inputs(), [&](const Input& input) {
    return input.role == InputRole::kParam &&
           std::ranges::any_of(rules.experts, [&](const std::string& pattern) {
             return compile::MatchesPattern(pattern, input.label);
           });
  });
  if (!has_stacks)
    return Error(Diag::kPlan,
                 "axis `{}` shares experts, but no rule matches a stack of experts; name them in "
                 "`Rules(experts=[...])`, or leave out the axis",
                 presets.experts[0]);
  if (std::ranges::any_of(rules.layers, &compile::LayerRule::own_tokens)) return Done{};
  return Error(Diag::kPlan,
               "axis `{}` shares experts, but no rule matches a module that routes tokens to them; "
               "name it in `Rules(local=[...])`; for transformers: "
               "model.set_experts_implementation(\"grouped_mm\") before the capture",
               presets.experts[0]);
}

Result<PlanView> MakeView(const GraphView& graph, const std::string& mesh, bool automatic,
                          const PlanRules& rules, const std::string& memory,
                          const std::string& cluster) {
  HEDDLE_RETURN_IF_ERROR(CheckGlobal(graph));
  HEDDLE_TRY(Mesh flag, ParseMeshFlag(mesh));
  Mesh parsed = WithExpertAxis(flag);
  Result<compile::PresetOptions> presets = PresetsOf(parsed);
  Result<compile::Plan> usual = presets.ok() ? MakePlanWith(graph.graph(), parsed, rules, *presets)
                                             : Result<compile::Plan>(std::move(presets).failure());
  if (automatic && presets.ok() && !presets->experts.empty())
    return Error(Diag::kPlan,
                 "`auto` cannot share experts over axis `{}`; leave out one of them, and state in "
                 "rules what a tp axis splits",
                 presets->experts[0]);
  search::GraphJob job;
  if (!automatic) {
    HEDDLE_TRY(job.plan, std::move(usual));
  } else {
    job.plan.mesh = parsed;
    job.plan.automatic = true;
    if (usual.ok()) job.request.rivals.push_back({"preset", *std::move(usual)});
    job.request.tries_plans = true;
  }
  if (memory.empty() && !automatic) return ViewOf(std::move(job.plan));
  auto origin = std::make_shared<PlanOrigin>(PlanOrigin{graph.shared, job.plan, cluster, memory});
  job.settings.memory_budget = memory;
  // What is found depends on the schedule, so the plan states this pipeline.
  job.settings.usual_pipeline = "fsdp";
  job.prices.cluster = cluster;
  HEDDLE_TRY(compile::Plan found, search::CompleteGraphPlan(graph.module(), job));
  return ViewOf(std::move(found), automatic ? std::move(origin) : nullptr);
}

Result<std::string> Explain(const PlanOrigin& origin, const std::string& name) {
  HEDDLE_TRY(price::CostModel costs, CostsOf(origin.cluster));
  search::WorkLimit limit{search::AutoOptions().work};
  const Module& step = origin.step->module();
  HEDDLE_TRY(search::AutoPlanner planner,
             search::AutoPlanner::Make(step, origin.asked, costs, limit));
  search::AutoPlanner::Request request;
  if (!origin.memory.empty()) {
    HEDDLE_TRY(Bytes budget, search::ParseBudget(origin.memory));
    request.memory = search::MemoryLimit{budget, true};
  }
  HEDDLE_TRY(search::StorageExplanation explained,
             search::ExplainStorage(planner, step.graphs[0], origin.asked, name, request));
  return search::Format(explained);
}

}  // namespace

Status CheckGlobal(const GraphView& graph) {
  if (graph.module().view == View::kGlobal) return Done{};
  return Error(Diag::kPassView,
               "@{} is a local graph, which one rank runs; a plan is for a global graph, of the "
               "whole step",
               graph.graph().name());
}

Result<PlanRules> RulesOf(const RuleLists& lists) {
  PlanRules rules;
  for (const auto& [pattern, dim] : lists.weights) {
    if (dim < 0)
      return Error(Diag::kBadChoice, "the rule for `{}` splits dimension {}, expected at least 0",
                   pattern, dim);
    rules.parallel.weights.push_back({pattern, static_cast<size_t>(dim)});
  }
  rules.parallel.experts = lists.experts;
  for (const std::string& pattern : lists.own_tokens)
    rules.parallel.layers.push_back({.pattern = pattern, .own_tokens = true});
  for (const auto& [pattern, in, out] : lists.layers) {
    compile::LayerRule rule{.pattern = pattern};
    HEDDLE_TRY(rule.in, ParseFlow(in));
    HEDDLE_TRY(rule.out, ParseFlow(out));
    if (rule.in == compile::Flow::kLogits) rule.why = Why::kLoss;
    rules.parallel.layers.push_back(std::move(rule));
  }
  rules.units = lists.units;
  return rules;
}

Result<compile::Plan> MakePlanWith(const heddle::Graph& graph, const Mesh& mesh,
                                   const PlanRules& rules, const compile::PresetOptions& presets) {
  HEDDLE_RETURN_IF_ERROR(CheckExperts(graph, rules.parallel, presets));
  HEDDLE_TRY(compile::Plan plan, compile::MakePlan(graph, mesh, rules.parallel, presets));
  for (compile::PlanParam& param : plan.params) {
    auto unit = rules.units.find(param.pattern);
    if (unit != rules.units.end()) param.unit = unit->second;
  }
  return plan;
}

Result<price::CostModel> CostsOf(const std::string& cluster) {
  price::PriceOptions prices;
  prices.cluster = cluster;
  return prices.Load();
}

PlanView ViewOf(compile::Plan plan, std::shared_ptr<const PlanOrigin> origin) {
  std::string text = compile::FormatPlan(plan);
  return {std::move(plan), std::move(text), std::move(origin)};
}

void BindPlan(nb::module_& module) {
  nb::class_<PlanView>(module, "Plan",
                       "How a step is spread over a mesh: a text (docs/plans.md).\n\n"
                       ">>> plan = heddle.Plan('''heddle plan 1\n"
                       "... mesh [dp=4]\n"
                       "... input \"*\" [dp]\n"
                       "... param \"**\" store [dp] compute [-]\n"
                       "... ''')\n"
                       ">>> plan.mesh\n"
                       "{'dp': 4}\n"
                       ">>> print(str(plan).splitlines()[1])\n"
                       "mesh [dp=4]\n")
      .def(
          "__init__",
          [](PlanView* self, const std::string& text, const std::string& file) {
            new (self) PlanView(ParseView(text, file));
          },
          "text"_a, "file"_a = "plan")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            return ParseView(Take(ReadFile(path.string()), kPlanError), path.string());
          },
          "path"_a, nb::sig("def load(path: str | os.PathLike[str]) -> Plan"),
          "Reads a plan from a file.")
      .def(
          "save",
          [](const PlanView& self, const std::filesystem::path& path) {
            Take(WriteFile(path.string(), self.text), kPlanError);
          },
          "path"_a, nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the text to a file.")
      .def_prop_ro(
          "mesh", [](const PlanView& self) { return ToPython(self.plan.mesh); },
          nb::sig("def mesh(self) -> dict[str, int]"), "Axes and their sizes, the slowest first.")
      .def_prop_ro(
          "automatic", [](const PlanView& self) { return self.plan.automatic; },
          "Whether the plan says `auto`: what it leaves open is found when it is used.")
      .def(
          "diff",
          [](const PlanView& self, const PlanView& other) {
            return compile::Format(compile::Diff(self.plan, other.plan));
          },
          "other"_a, "The statements that differ, `-` here and `+` in `other`; empty for none.")
      .def(
          "explain",
          [](const PlanView& self, const std::string& name) {
            if (self.origin == nullptr)
              Raise(kPlanError, {MakeDiagnostic(Diag::kUsage,
                                                "only plans of `Step.plan(..., auto=True)` can "
                                                "be explained: others state what they do")});
            return Take(Unlocked([&] { return Explain(*self.origin, name); }), kPlanError);
          },
          "name"_a,
          "Why `auto` placed a parameter where it is, and what every other placement would cost.")
      .def("__str__", [](const PlanView& self) { return self.text; })
      .def(
          "_repr_html_", [](nb::handle self) { return RichHtml("plan_html", self); },
          nb::sig("def _repr_html_(self) -> str"), "What a notebook shows.")
      .def("__repr__",
           [](const PlanView& self) {
             return fmt::format("<heddle.Plan [{}]{}>", Format(self.plan.mesh),
                                self.plan.automatic ? ", auto" : "");
           })
      .def(
          "__eq__",
          [](const PlanView& self, nb::handle other) {
            return nb::isinstance<PlanView>(other) &&
                   compile::FormatPlan(self.plan) ==
                       compile::FormatPlan(nb::cast<const PlanView&>(other).plan);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"),
          "Whether both have the same statements.")
      .def("__hash__",
           [](const PlanView& self) {
             return std::hash<std::string>()(compile::FormatPlan(self.plan));
           })
      .def("__getstate__", [](const PlanView& self) { return self.text; })
      .def("__setstate__", [](PlanView& self, const std::string& text) {
        new (&self) PlanView(ParseView(text, "pickle"));
      });
  nb::class_<RuleLists>(module, "RuleLists",
                        "What users tell presets: weights as (pattern, dimension), patterns of "
                        "stacks of experts,\nmodules as (pattern, flow in, flow out), patterns of "
                        "modules in which each "
                        "rank has its own tokens,\nFSDP units by parameter. A flow is `residual`, "
                        "`whole`, `logits` or "
                        "empty.")
      .def(
          "__init__",
          [](RuleLists* self, decltype(RuleLists::weights) weights,
             std::vector<std::string> experts, decltype(RuleLists::layers) layers,
             std::vector<std::string> own_tokens, std::map<std::string, std::string> units) {
            new (self) RuleLists{std::move(weights), std::move(experts), std::move(layers),
                                 std::move(own_tokens), std::move(units)};
          },
          "weights"_a = decltype(RuleLists::weights)(), "experts"_a = std::vector<std::string>(),
          "layers"_a = decltype(RuleLists::layers)(), "own_tokens"_a = std::vector<std::string>(),
          "units"_a = std::map<std::string, std::string>());
  module.def(
      "make_plan",
      [](const GraphView& graph, const std::string& mesh, bool automatic, const RuleLists& lists,
         const std::string& memory, const std::string& cluster) {
        PlanRules rules = Take(RulesOf(lists), kPlanError);
        return Take(
            Unlocked([&] { return MakeView(graph, mesh, automatic, rules, memory, cluster); }),
            kPlanError);
      },
      "graph"_a, "mesh"_a, nb::kw_only(), "auto"_a, "rules"_a, "memory"_a, "cluster"_a,
      "A plan for a global graph: FSDP over the axes that split the batch and tensor parallelism "
      "by the\nrules, or with `auto` the fastest placements on the cluster.");
}

}  // namespace heddle::python
