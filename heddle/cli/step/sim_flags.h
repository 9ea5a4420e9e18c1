// The flags and the output of the commands that simulate steps.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags/flags.h"
#include "heddle/price/cost/price_options.h"
#include "heddle/search/evaluate/simulated_module.h"

namespace heddle {

// The flags of every command that prices nodes.
void DeclarePrices(Flags& flags, price::PriceOptions& prices, std::string_view cluster_help);

struct SimFlags : price::PriceOptions {
  std::optional<int64_t> slowdown;
  std::string memory_cap;
  bool free_inputs = false;
  std::optional<int64_t> tokens;

  // A command whose own `--memory` limits the schedule declares no `--memory-cap`.
  void Declare(Flags& flags, bool with_memory_cap = true);
  Result<price::SimulateOptions> Options() const;
};

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
  Status WriteFiles(std::span<const search::SimulatedModule> modules, const price::CostModel& model,
                    const Streams& streams) const;
  // One module, or two that are compared; summary, JSON, timeline and trace are of the last.
  Status Write(std::span<const search::SimulatedModule> modules, const price::CostModel& model,
               const Streams& streams,
               const std::optional<SimulatedModel>& captured = std::nullopt) const;
};
// A report of one module, or of two that are compared, as an HTML file.
Status WritePage(const std::string& path, std::span<const search::SimulatedModule> modules,
                 const price::CostModel& model, const Streams& streams);

}  // namespace heddle
