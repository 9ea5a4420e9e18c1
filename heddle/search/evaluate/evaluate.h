// Evaluator: the outcome of a candidate on a cluster. Every search compares its outcomes.
//
// Runs the passes of the candidate on its graph, and simulates the resulting graph. So a peak is
// exact to the byte, and a time accounts for overlap.
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
  // The time of all work on the compute stream.
  Nanos compute = {};
  // The best bound of the step with compute in this order (sim/explain/bounds.h).
  Nanos step = {};
  // Bytes of inputs, and of values that forward keeps for backward.
  Bytes peak = {};
  bool operator==(const StepBounds&) const = default;
};

// Communication of context parallelism: the bytes of its collectives on a rank, and their exposed
// time.
struct ContextTraffic {
  Bytes bytes = {};
  Nanos exposed = {};
  bool operator==(const ContextTraffic&) const = default;
};

struct StepOutcome {
  Nanos step = {};
  // The part of the step in which the compute stream is idle.
  Nanos exposed = {};
  Bytes peak = {};
  ContextTraffic context = {};
  StepBounds bounds = {};
  bool operator==(const StepOutcome&) const = default;
};
// Keys: `step_ms`, `exposed_ms`, `peak_bytes`.
nlohmann::ordered_json ToJson(const StepOutcome& outcome);

struct Evaluation {
  // The module after the passes.
  Module module;
  std::vector<compile::PassRecord> passes;
  StepOutcome outcome;
  // The exposed share of the collectives of each kind; 1 if the step has none of a kind.
  price::MoveShares shares;
  // Bytes of values that forward leaves for backward.
  Bytes kept;
};

class Evaluator {
 public:
  // `costs` must outlive this object.
  explicit Evaluator(const price::CostModel& costs) : costs_(&costs) {}

  const price::CostModel& costs() const { return *costs_; }
  // Runs the passes, which make one local graph of `module`, and simulates it. The manager does not
  // check the passes; Compile runs them again, with checks, for the chosen plan.
  Result<Evaluation> Run(Module module, const compile::Pipeline& passes) const;
  // The bounds of compute and peak, without a simulation.
  Result<StepBounds> Bounds(Module module, const compile::Pipeline& passes) const;
  // Options of the manager for trials.
  compile::ManagerOptions Unchecked() const;

 private:
  const price::CostModel* costs_;
};

}  // namespace heddle::search
