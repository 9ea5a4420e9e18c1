// What commands that simulate steps share: the cluster and the rules they are simulated by, and what is written of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags.h"
#include "heddle/compile/manager/manager.h"
#include "heddle/price/sim/simulate.h"

namespace heddle {

// What nodes cost: the flags of every command in which something is priced.
struct CostFlags {
  std::string cluster = "h100-8x";
  std::optional<int64_t> nodes;
  std::string costs;
  std::string collectives = "native";
  std::string rules = "native";
  bool fuse = false;
  std::string expert_load = "uniform";

  void Declare(Flags& flags, std::string_view cluster_help);
  Result<price::CostModel> Model() const;
};

struct SimFlags : CostFlags {
  std::optional<int64_t> slowdown;
  std::string memory_cap;
  bool free_inputs = false;
  std::optional<int64_t> tokens;

  // A command whose own `--memory` limits the schedule declares no `--memory-cap`.
  void Declare(Flags& flags, bool with_memory_cap = true);
  Result<price::SimulateOptions> Options() const;
};

// A module, all of its graphs simulated.
struct SimulatedModule {
  // What reports call it.
  std::string name;
  Module module;
  // What made it, where that is known.
  std::vector<compile::PassRecord> passes = {};
  // The model, where that is known: `llama3 8B`.
  std::string trained = {};
  // By graph.
  std::vector<price::Simulation> simulations = {};
};
Result<SimulatedModule> SimulateModule(std::string name, Module module,
                                       const price::CostModel& model,
                                       const price::SimulateOptions& options);

// The captured model that was simulated, for JSON.
struct SimulatedModel {
  // `cuda`: whose kernels the step uses.
  std::string device;
  bool optimizer = false;
};

struct SimOutputs {
  std::string html;
  std::string trace;
  bool timeline = false;
  bool json = false;

  void Declare(Flags& flags);
  // That only one of them goes to standard output.
  Status Check() const;
  // Trace and page alone.
  Status WriteFiles(std::span<const SimulatedModule> modules, const price::CostModel& model,
                    const Streams& streams) const;
  // One module, or two that are compared; summary, JSON, timeline and trace are of the last.
  Status Write(std::span<const SimulatedModule> modules, const price::CostModel& model,
               const Streams& streams,
               const std::optional<SimulatedModel>& captured = std::nullopt) const;
};
// A report of one module, or of two that are compared, as an HTML file.
Status WritePage(const std::string& path, std::span<const SimulatedModule> modules,
                 const price::CostModel& model, const Streams& streams);

}  // namespace heddle
