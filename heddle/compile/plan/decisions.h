// PlanDecisions: what a plan decides beyond placements.
//
//   batch 64 x 8192 in 4 micro-batches
//   norms apart
//   cluster "h100-8x"
//   budget 60GiB
//   checkpoint "selective"
//   keep "layers.{0-11}.attention" aten.mm fwd 0 prefer_recompute
//   reshard "never"
//   reduce-first true
//   expert-rows bound
//   pipeline "overlap"
//   stages 0/3 schedule "1F1B" in 8 micro-batches gather every 1 reduce every 2
//
// Each is optional: the command's flags and defaults decide what the plan leaves out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// Sequences per step on all ranks, tokens per sequence, and the number of micro-batches.
struct PlanBatch {
  int64_t sequences = 1;
  int64_t seq_len = 1;
  int64_t micro_batches = 1;

  // Sequences per micro-batch on all ranks.
  int64_t pass_sequences() const { return sequences / micro_batches; }
  bool operator==(const PlanBatch&) const = default;
};
// `64 x 8192 in 4 micro-batches`
std::string Format(const PlanBatch& batch);

// The stages of pipeline parallelism. The batch above is that of one micro-batch of this schedule
// on all ranks, times `micro_batches`.
struct PlanStages {
  // The first position of each stage: 0 is the embedding, N is layer N - 1, and the output follows
  // the last layer.
  std::vector<int64_t> first_positions;
  // The name of a schedule (core/pipeline/schedule.h).
  std::string schedule;
  int64_t micro_batches = 1;
  // Weights are gathered for each group of this many micro-batches; 0: once per step.
  int64_t gather_every = 0;
  // Gradients are reduced after each group of this many micro-batches; 0: once per step.
  int64_t reduce_every = 0;
  bool operator==(const PlanStages&) const = default;
};
// `0/3 schedule "1F1B" in 8 micro-batches`
std::string Format(const PlanStages& stages);
// `0/3`
std::string FormatPositions(const PlanStages& stages);

// A `keep` statement: whether forward's values are kept for backward. It is about nodes of the
// lowered graph after `clean`, named as in a `node` statement.
struct PlanMark {
  // A pattern of scopes; empty for nodes without a scope.
  std::string pattern;
  std::string op;
  Phase phase = Phase::kForward;
  // Index among the nodes of this op in its scope and phase, in order, from 0.
  int64_t number = 0;
  // Index of the result.
  int64_t result = 0;
  Keep keep = Keep::kDefault;
  uint32_t line = 0;
};

struct PlanDecisions {
  std::optional<PlanBatch> batch = {};
  // Whether RMSNorm moves its input separately from other readers (StepNumerics). By default it
  // does if the mesh has an axis for tensor parallelism.
  std::optional<bool> norms_apart = {};
  // The cluster, a name or a file, that schedules are made for.
  std::optional<std::string> cluster = {};
  // The memory limit that the plan was found under.
  std::optional<Bytes> budget = {};
  // A policy of the pass `checkpoint`; or single decisions from a search.
  std::optional<std::string> checkpoint = {};
  std::vector<PlanMark> marks = {};
  // A policy of the pass `reshard-after-forward`.
  std::optional<std::string> reshard = {};
  // HSDP: gradients are first all-reduced whole and then scattered.
  std::optional<bool> reduce_first = {};
  // Buffers for shared experts have room for the worst case, so sizes are static.
  std::optional<bool> expert_buffers = {};
  std::optional<PlanStages> stages = {};
  // The passes after lowering and memory decisions: a pipeline's name, or its text.
  std::optional<std::string> pipeline = {};

  // Whether it states what backward recomputes.
  bool decides_memory() const { return checkpoint || !marks.empty(); }
};

// One statement a line, as in a plan.
std::string FormatDecisions(const PlanDecisions& decisions);

}  // namespace heddle::compile
