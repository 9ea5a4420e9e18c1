// Evaluator: what a candidate comes to on a cluster. Every search compares its outcomes.
//
// The passes of the candidate run on its graph, and the graph that results is simulated. So a peak is
// exact to the byte, and a time includes what the schedule hides.
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/compile/manager/manager.h"
#include "heddle/core/ir/graph.h"
#include "heddle/price/cost/cost_model.h"
#include "heddle/price/cost/move_shares.h"

namespace heddle::search {

// Lower bounds over all schedules of the same nodes.
struct StepBounds {
  // All work of the compute stream.
  Nanos compute = {};
  // The best bound of the step with compute in this order (sim/explain/bounds.h).
  Nanos step = {};
  // Inputs, and values that forward keeps for backward.
  Bytes peak = {};
  bool operator==(const StepBounds&) const = default;
};

struct StepOutcome {
  Nanos step = {};
  // The part of the step in which no compute runs.
  Nanos exposed = {};
  Bytes peak = {};
  StepBounds bounds = {};
  bool operator==(const StepOutcome&) const = default;
};
// `step_ms`, `exposed_ms`, `peak_bytes`.
nlohmann::ordered_json ToJson(const StepOutcome& outcome);

struct Evaluation {
  // After the passes.
  Module module;
  std::vector<compile::PassRecord> passes;
  StepOutcome outcome;
  // How much of the collectives of each kind is exposed; 1 if the step has none of a kind.
  price::MoveShares shares;
};

class Evaluator {
 public:
  // `costs` outlives this.
  explicit Evaluator(const price::CostModel& costs) : costs_(&costs) {}

  const price::CostModel& costs() const { return *costs_; }
  // Runs the passes, which make one local graph of `module`, and simulates it. The manager does not
  // check the passes; Compile runs them again, with checks, for the plan that is chosen.
  Result<Evaluation> Run(Module module, const compile::Pipeline& passes) const;
  // Options of the manager for trials.
  compile::ManagerOptions Unchecked() const;

 private:
  const price::CostModel* costs_;
};

}  // namespace heddle::search
