// StepSummary: memory, work and communication of one rank in a step.
#pragma once

#include "heddle/core/analysis/stats.h"

namespace heddle::price {

struct StepSummary {
  Mesh mesh;
  int64_t ranks = 1;
  // Elements of all parameters on the whole mesh.
  int64_t parameters = 0;
  // Bytes of one rank, the largest.
  Bytes param_bytes;
  Bytes grad_bytes;
  // Two moments per parameter, as in AdamW; if the graph has an optimizer, its actual state.
  Bytes optimizer_bytes;
  bool has_optimizer = false;
  // Memory that forward leaves for backward, at the end of forward.
  Bytes activation_bytes;
  // The peak of the values, node by node; and of the device program, if the step runs as one.
  Bytes peak_bytes;
  std::optional<Bytes> program_peak = {};
  std::string peak_node;
  std::vector<AliveStats> alive_at_peak;
  Flops flops;
  // Work of the whole step before it was partitioned; 0 if unknown.
  Flops whole_flops;
  int64_t nodes = 0;
  std::vector<CollectiveStats> collectives;

  Bytes device_peak() const { return program_peak.value_or(peak_bytes); }
};

// The arithmetic of all nodes; collectives and opaque ops count as none.
Flops TotalFlops(const Module& module, const Graph& graph);

// `whole_flops`: the work of the graph before it was partitioned, if it is known.
StepSummary Summarize(const Module& module, const Graph& graph, Flops whole_flops = {});

}  // namespace heddle::price
