// Flags and output of the commands that simulate steps.
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

void DeclareExecution(Flags& flags, std::optional<price::Execution>& execution);
// The flags of every command that prices nodes.
void DeclarePrices(Flags& flags, price::PriceOptions& prices, std::string_view cluster_help);

struct SimFlags : price::PriceOptions {
  std::optional<int64_t> slowdown;
  std::string memory_cap;
  bool free_inputs = false;
  std::optional<int64_t> tokens;

  // `with_memory_cap`: false for a command whose own `--memory` limits the schedule.
  void Declare(Flags& flags, bool with_memory_cap = true);
  Result<price::SimulateOptions> Options() const;
};

// The captured model of a simulation, for JSON.
struct SimulatedModel {
  // The device type whose kernels the step uses, such as `cuda`.
  std::string device;
  bool optimizer = false;
};

struct SimOutputs {
  std::string html;
  std::string trace;
  bool timeline = false;
  bool json = false;

  void Declare(Flags& flags);
  // Fails if several outputs go to standard output.
  Status Check() const;
  // Writes only the trace and the page.
  Status WriteFiles(std::span<const search::SimulatedModule> modules, const price::CostModel& model,
                    const Streams& streams) const;
  // Writes one module, or two to compare. Summary, JSON, timeline and trace are those of the last.
  Status Write(std::span<const search::SimulatedModule> modules, const price::CostModel& model,
               const Streams& streams,
               const std::optional<SimulatedModel>& captured = std::nullopt) const;
};
// A report of one module, or of two that are compared, as an HTML file.
Status WritePage(const std::string& path, std::span<const search::SimulatedModule> modules,
                 const price::CostModel& model, const Streams& streams);

}  // namespace heddle
