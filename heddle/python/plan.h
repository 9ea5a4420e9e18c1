// Plans in Python.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>

#include "heddle/compile/plan/plan.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/price/cost/cost_model.h"
#include "heddle/python/graph.h"

namespace heddle::python {

// The step that a plan was made for, so that it can be explained.
struct PlanOrigin {
  std::shared_ptr<const SharedModule> step;
  // Before `auto` was completed.
  compile::Plan asked;
  std::string cluster;
  std::string memory;
};

struct PlanView {
  compile::Plan plan;
  std::string text;
  std::shared_ptr<const PlanOrigin> origin = {};
};

// What users tell presets, as lists: (pattern, dimension) of weights, patterns of stacks of
// experts, (pattern, flow in, flow out) of modules, patterns of modules in which each rank has its
// own tokens, FSDP units by parameter.
struct RuleLists {
  std::vector<std::pair<std::string, int64_t>> weights;
  std::vector<std::string> experts;
  std::vector<std::tuple<std::string, std::string, std::string>> layers;
  std::vector<std::string> own_tokens;
  std::map<std::string, std::string> units;
};

struct PlanRules {
  compile::ParallelRules parallel;
  // By parameter.
  std::map<std::string, std::string> units;
};
Result<PlanRules> RulesOf(const RuleLists& lists);

// Fails for the graph of one rank.
Status CheckGlobal(const GraphView& graph);

// The plan of presets for a global graph.
Result<compile::Plan> MakePlanWith(const heddle::Graph& graph, const Mesh& mesh,
                                   const PlanRules& rules, const compile::PresetOptions& presets);

// The prices of a cluster, by name or file.
Result<price::CostModel> CostsOf(const std::string& cluster);

PlanView ViewOf(compile::Plan plan, std::shared_ptr<const PlanOrigin> origin = {});

void BindPlan(nanobind::module_& module);

}  // namespace heddle::python
