// SimulatedModule: a module and the simulations of its graphs, for reports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/plan/decisions.h"
#include "heddle/price/pipeline/pipeline_simulation.h"

namespace heddle::search {

struct SimulatedModule {
  // Its name in reports: a pipeline or a file.
  std::string name;
  Module module;
  // The passes that made it, if known.
  std::vector<compile::PassRecord> passes = {};
  // The model, if known, such as `llama3 8B`.
  std::string trained = {};
  // By graph.
  std::vector<price::Simulation> simulations = {};
  // If the graphs are those of the coordinates of a pipeline.
  std::optional<price::PipelineSimulation> pipeline = {};
};

price::PipelineFacts PipelineFactsOf(const compile::PlanDecisions& decisions);

Result<SimulatedModule> SimulateModule(std::string name, Module module,
                                       const price::CostModel& model,
                                       const price::SimulateOptions& options,
                                       const price::PipelineFacts& facts = {});

}  // namespace heddle::search
