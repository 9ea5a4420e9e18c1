// Actions and bubbles of a simulated pipeline, and a lower bound on its step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/core/pipeline/schedule.h"
#include "heddle/price/sim/simulate.h"

namespace heddle::price {

// A stretch of one action on a coordinate: its first and last kernel. Other work may be between.
struct TimedAction {
  PipelineAction action;
  Nanos begin;
  Nanos end;
};

// The part of the step in which a bubble is: before the first action of its coordinate, between its
// actions, or after the last one.
enum class BubbleKind : uint8_t { kFill, kSteady, kDrain };
std::string_view Name(BubbleKind kind);

// Idle time of a coordinate that waits for another one.
struct Bubble {
  BubbleKind kind = BubbleKind::kSteady;
  Nanos begin;
  Nanos end;
  // Time on the way to this coordinate, at the end of the bubble.
  Nanos hop;
  // The transfer that it waits for, and its other coordinate; for idle time at the end of the step,
  // empty, and the coordinate that ends last.
  std::string tag;
  size_t other = 0;
};

struct CoordinateTimes {
  std::vector<TimedAction> actions;
  std::vector<Bubble> bubbles;
  // Idle time for other coordinates, without and with hops in between; the rest of the step.
  Nanos bubble;
  Nanos hop;
  Nanos busy;
};

// The schedule and the stages of a plan. Without first positions, each stretch of layers on one
// coordinate counts as a stage.
struct PipelineFacts {
  std::string schedule = {};
  std::vector<int64_t> first_positions = {};
};

struct PipelineSimulation {
  // Empty if unknown.
  std::string schedule;
  int64_t stages = 0;
  int64_t micro_batches = 0;
  Nanos step;
  // The mean over coordinates.
  Nanos bubble;
  // No order of the same actions, on the same coordinates and with as many activations, takes less.
  Nanos bound;
  std::vector<CoordinateTimes> coordinates;
  // The coordinate with the most own work.
  size_t slowest = 0;

  double gap() const;
};

// `simulations` are those of the module's graphs, simulated together.
PipelineSimulation DescribePipeline(const Module& module, std::span<const Simulation> simulations,
                                    const PipelineFacts& facts);

}  // namespace heddle::price
