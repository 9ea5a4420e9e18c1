#include "heddle/python/search.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "heddle/core/base/clock.h"
#include "heddle/python/errors.h"
#include "heddle/python/graph.h"
#include "heddle/python/plan.h"
#include "heddle/search/arrangement/plan_search.h"
#include "heddle/search/memory/choice.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace heddle::python {
namespace {

struct SearchSettings {
  int64_t devices = 1;
  std::string cluster;
  std::string memory;
  PlanRules rules;
  std::vector<int64_t> tensor_degrees;
  bool automatic = true;
  bool overlap = true;
  // Called with the number of finished points, that of all, and the current phase.
  nb::object progress;
};

// The size of the first dimension of the batch.
Result<int64_t> Sequences(const heddle::Graph& graph) {
  for (const Input& input : graph.inputs()) {
    std::span<const Dim> dims = graph.types().dims(graph.type(input.value));
    if (input.role == InputRole::kBatch && !dims.empty()) return dims[0];
  }
  return Error(Diag::kUsage, "@{} has no batch: no input has the role batch and a dimension",
               graph.name());
}

Result<search::SearchResult> Search(const GraphView& graph, const SearchSettings& settings) {
  HEDDLE_RETURN_IF_ERROR(CheckGlobal(graph));
  HEDDLE_TRY(price::CostModel costs, CostsOf(settings.cluster));
  search::PlanSearchOptions options;
  options.devices = settings.devices;
  HEDDLE_TRY(options.global_batch, Sequences(graph.graph()));
  options.budget = costs.cluster().device.memory;
  if (!settings.memory.empty()) {
    HEDDLE_TRY(options.budget, search::ParseBudget(settings.memory));
  }
  options.cluster = settings.cluster;
  options.automatic = settings.automatic;
  options.overlap = settings.overlap;
  options.progress = [&](const search::SearchProgress& now) {
    nb::gil_scoped_acquire lock;
    settings.progress(now.done, now.all, nb::str(now.doing.data(), now.doing.size()));
  };
  search::SearchedModel model;
  model.one_pass = true;
  model.capture = [&](const search::StepRequest&) -> Result<Module> { return graph.module(); };
  model.preset = [&](const heddle::Graph& step, const search::Arrangement& arrangement) {
    return MakePlanWith(step, search::MeshOf(arrangement), settings.rules,
                        search::PresetOf(arrangement));
  };
  model.supports = [&](const search::Arrangement& arrangement) {
    return arrangement.context == 1 &&
           std::ranges::find(settings.tensor_degrees, arrangement.tensor) !=
               settings.tensor_degrees.end();
  };
  return search::PlanSearch(std::move(model), costs, std::move(options)).Run();
}

nb::dict ToPython(const search::TriedPoint& tried) {
  nb::dict out;
  out["plan"] = nb::cast(ViewOf(tried.plan));
  out["name"] = Format(tried.point);
  out["step_time"] = static_cast<double>(tried.outcome.step.value) / 1e9;
  out["exposed"] = static_cast<double>(tried.outcome.exposed.value) / 1e9;
  out["peak_memory"] = tried.outcome.peak.value;
  return out;
}

}  // namespace

void BindSearch(nb::module_& module) {
  module.def(
      "search_plans",
      [](const GraphView& graph, int64_t devices, const std::string& cluster,
         const std::string& memory, const RuleLists& rules,
         const std::vector<int64_t>& tensor_degrees, bool automatic, bool overlap,
         nb::object progress) {
        SearchSettings settings{
            devices,        cluster,   memory,  Take(RulesOf(rules), "PlanError"),
            tensor_degrees, automatic, overlap, std::move(progress)};
        search::SearchResult found =
            Take(Unlocked([&] { return Search(graph, settings); }), "PlanError");
        nb::list front;
        for (const search::TriedPoint& tried : found.front) front.append(ToPython(tried));
        nb::dict out;
        out["front"] = front;
        out["points"] = found.points;
        out["tried"] = found.tried;
        out["pruned"] = found.pruned;
        out["notes"] = nb::cast(found.notes);
        return out;
      },
      "graph"_a, "devices"_a, nb::kw_only(), "cluster"_a, "memory"_a, "rules"_a, "tensor_degrees"_a,
      "auto"_a, "overlap"_a, "progress"_a,
      nb::sig("def search_plans(graph: Graph, devices: int, *, cluster: str, memory: str, rules: "
              "RuleLists, tensor_degrees: list[int], auto: bool, overlap: bool, progress: "
              "Callable[[int, int, str], None]) -> dict[str, typing.Any]"));
}

}  // namespace heddle::python
