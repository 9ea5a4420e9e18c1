#include "heddle/search/evaluate/simulated_module.h"

namespace heddle::search {

Result<SimulatedModule> SimulateModule(std::string name, Module module,
                                       const price::CostModel& model,
                                       const price::SimulateOptions& options) {
  SimulatedModule out{std::move(name), std::move(module)};
  for (const Graph& graph : out.module.graphs) {
    HEDDLE_TRY(price::Simulation one, price::Simulate(out.module, graph, model, options));
    out.simulations.push_back(std::move(one));
  }
  return out;
}

}  // namespace heddle::search
