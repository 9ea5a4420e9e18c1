// SimulatedModule: a module and the simulations of its graphs, for reports.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/manager.h"
#include "heddle/price/sim/simulate.h"

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
};

Result<SimulatedModule> SimulateModule(std::string name, Module module,
                                       const price::CostModel& model,
                                       const price::SimulateOptions& options);

}  // namespace heddle::search
