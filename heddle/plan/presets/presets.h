// Presets: plans for the usual ways of training in parallel, and their products.
//
// Each preset is one kind of parallelism with a mesh axis of its own, in a file of its own. `replicate` and `shard` split the batch;
// over `replicate` parameters are whole (DDP), over `shard` they are kept in parts (FSDP); both together are HSDP. `tensor` splits
// heads, hidden units and the vocabulary, and by default activations between blocks, by position.
//
// A new preset is a file with HEDDLE_DEFINE_PRESET and one line in preset_list.def; flags and axes follow from it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "heddle/ir/graph.h"
#include "heddle/plan/plan.h"
#include "heddle/plan/presets/rules.h"

#define HEDDLE_DEFINE_PRESET(ident)    \
  extern const Preset kPreset_##ident; \
  constinit const Preset kPreset_##ident =

namespace heddle {

struct PresetOptions {
  // By the name of a preset, its axis of the mesh; a preset without an axis is not used.
  std::map<std::string, std::string, std::less<>> axes = {};
  bool sequence_parallel = true;
  // The loss works on logits that are split by vocabulary; otherwise they are gathered.
  bool split_loss = true;
};

// A plan while presets write it.
struct PlanDraft {
  const Graph& graph;
  const ParallelRules& rules;
  const PresetOptions& options;
  // Every parameter has its entry, in the order of the graph's inputs, with as many splits as it has dimensions.
  Plan plan;
  // The axes that split the batch, the outermost first.
  Axes data;
};

struct Preset {
  // `shard`
  std::string_view name;
  // What its axis is called unless the user says otherwise: `dp`.
  std::string_view axis;
  // The flag that gives the number of ranks, behind `--parallelism.`, and its help.
  std::string_view degree_flag;
  std::string_view help;
  bool splits_batch = false;
  // Writes what the preset means for `axis` into the draft.
  void (*apply)(PlanDraft& draft, AxisId axis) = nullptr;
};

// In the order of their axes in a mesh, the slowest first.
std::span<const Preset* const> Presets();

// The plan for a captured graph. `rules` say what tensor parallelism may split; a parameter that they do not name is whole there.
// Fails if an axis is missing from the mesh, or is that of two presets.
Result<Plan> MakePlan(const Graph& graph, const Mesh& mesh, const ParallelRules& rules,
                      const PresetOptions& options);

}  // namespace heddle
