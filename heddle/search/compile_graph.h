// CompileGraph: a captured graph and a plan, which may be incomplete, to the graph that runs. It
// finds what the plan leaves open, at the prices of a cluster.
#pragma once

#include <optional>

#include "heddle/price/cost/price_options.h"
#include "heddle/search/compile_settings.h"

namespace heddle::search {

struct GraphJob {
  compile::Plan plan;
  CompileSettings settings = {.usual_pipeline = "none"};
  price::PriceOptions prices = {};
  // The user chose `prices.cluster`: a plan must not state another one.
  bool chose_cluster = false;
  // How the plan is completed. The cluster is that of the plan or of `prices`.
  PlanRequest request = {};
  // The stage whose text is wanted, if any.
  std::optional<compile::Stage> print = {};
  // Whether the costs of each pass are measured.
  bool measure = false;
};

struct CompiledGraph {
  FoundPlan found;
  compile::CompileReport report;
  std::string cluster;
  price::CostModel costs;
};

// What CompileGraph starts with: the complete plan.
Result<compile::Plan> CompleteGraphPlan(const Module& module, const GraphJob& job);

// Makes `module`, a global graph, the final one.
Result<CompiledGraph> CompileGraph(Module& module, const GraphJob& job);

}  // namespace heddle::search
