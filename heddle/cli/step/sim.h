// The interface of `heddle sim` to its parts that need libtorch.
#pragma once

#include <memory>

#include "heddle/cli/command_set.h"
#include "heddle/cli/step/sim_flags.h"

namespace heddle {

// A model that is captured, planned and simulated.
class SimulatedSource {
 public:
  virtual ~SimulatedSource() = default;
  // Declares the flags of the model. `cluster` must outlive this.
  virtual void Declare(Flags& flags, const std::string& cluster) = 0;
  virtual Status Simulate(const price::PriceOptions& prices, const price::SimulateOptions& options,
                          const SimOutputs& outputs, const Streams& streams) const = 0;
};

// `model` is null in a program without libtorch.
void AddSim(CommandSet& commands, std::shared_ptr<SimulatedSource> model = nullptr);
// Whether `heddle sim ARGS...` simulates a graph in a file, which needs no libtorch.
bool SimulatesFile(std::span<const std::string> args);

}  // namespace heddle
