// Compares two schedules of one step: which is faster, and why, collective by collective.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/report/launches.h"

namespace heddle {

// A step in a report. The objects it points to must outlive it.
struct SimulatedStep {
  // The name of its pipeline or of its file, which distinguishes it from the other step.
  std::string name;
  // The trained model, if known: `llama3 8B`.
  std::string trained = {};
  const Module* module = nullptr;
  const Graph* graph = nullptr;
  const price::CostModel* model = nullptr;
  const price::Simulation* simulation = nullptr;
};

// Collectives of one purpose in both steps. One of the steps may have none.
struct LaunchDifference {
  Purpose purpose;
  LaunchSums before;
  LaunchSums after;

  Nanos saved() const { return before.exposed - after.exposed; }
  // `34 launches instead of 291 take 42.04 ms less; 47.30 ms overlap compute, none before`
  std::string Why() const;
};

struct StepComparison {
  SimulatedStep before;
  SimulatedStep after;
  // In the order of execution.
  std::vector<LaunchDifference> by_purpose;
  std::vector<LaunchDifference> by_unit;

  // Whether both steps process the same number of tokens, as far as it is known. Otherwise tokens
  // per second compare them.
  bool SameTokens() const;
  // `fsdp takes 182.24 ms less than none, 1.20 times as fast: 223.24 ms less are exposed, compute
  // takes 41.00 ms more`; of steps with different numbers of tokens: `new.hd processes 96.0 % more
  // tokens/s than old.hd: ...`
  std::string Headline() const;
};

StepComparison Compare(const SimulatedStep& before, const SimulatedStep& after);
// Figures of both steps, a row for each purpose, and the reasons for the difference.
std::string FormatComparison(const StepComparison& comparison, bool color);
// The keys of `heddle sim --json` for `after`, those of `before` as `against`, and the
// `difference`.
nlohmann::ordered_json ToJson(const StepComparison& comparison);

}  // namespace heddle
