// Presets: plans for the usual ways of training in parallel, and their products.
//
// Each preset is one kind of parallelism with a mesh axis of its own, in a file of its own. `replicate` and `shard` split the batch;
// over `replicate` parameters are whole (DDP), over `shard` they are kept in parts (FSDP); both together are HSDP. `tensor` splits
// heads, hidden units and the vocabulary, and by default activations between blocks, by position. Expert parallelism has no axis of its
// own: it takes the inner ranks of `shard`, and those of `tensor`, for the experts alone.
//
// A new preset is a file with HEDDLE_DEFINE_PRESET and one line in preset_list.def; flags and axes follow from it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/compile/plan/presets/rules.h"
#include "heddle/core/ir/axis_role.h"
#include "heddle/core/ir/graph.h"

#define HEDDLE_DEFINE_PRESET(ident)    \
  extern const Preset kPreset_##ident; \
  constinit const Preset kPreset_##ident =

namespace heddle::compile {

struct PresetOptions {
  // By the name of a preset, its axis of the mesh; a preset without an axis is not used.
  std::map<std::string, std::string, std::less<>> axes = {};
  bool sequence_parallel = true;
  // The loss works on logits that are split by vocabulary; otherwise they are gathered.
  bool split_loss = true;
  // A second axis of `shard`, inside of its own: expert parallelism takes only a part of these ranks.
  std::string inner_shard = {};
  // The axes whose ranks share the experts, in rank order; none without expert parallelism. If the axis of `tensor` is among them, its
  // ranks route tokens of their own, and share nothing else of the layer.
  std::vector<std::string> experts = {};
  // The most rows that a rank takes for its experts, in multiples of its own; 0 for all that may come.
  int64_t expert_times = 0;
};

// A plan while presets write it.
struct PlanDraft {
  const Graph& graph;
  const ParallelRules& rules;
  const PresetOptions& options;
  // Every parameter has its entry, in the order of the graph's inputs, with as many splits as it has dimensions.
  Plan plan;
  // The axes that split the batch, the outermost first.
  Axes data = {};
  // Of these, those that keep parts of parameters.
  Axes sharding = {};
  // The axes whose ranks share experts.
  Axes experts = {};
};

struct Preset {
  // `shard`
  std::string_view name;
  // The role of its axis.
  AxisRole role = AxisRole::kNone;
  // The flag that gives the number of ranks, behind `--parallelism.`, and its help.
  std::string_view degree_flag;
  std::string_view help;
  bool splits_batch = false;
  // Parameters are kept in parts, one for each rank.
  bool splits_params = false;
  // Writes what the preset means for `axis` into the draft.
  void (*apply)(PlanDraft& draft, AxisId axis) = nullptr;

  // The name of its axis unless the user chooses another: `dp`.
  constexpr std::string_view axis() const { return UsualName(role); }
};

// Which ranks share experts, `degree` of them that follow each other: all of `tensor`, if these share no expert among them, and the
// inner ones of `shard`. Its axis is cut in two, `dp_mod_ep` and `dp_in_ep`, where these are not all.
void ChooseExpertAxes(int64_t degree, bool with_tensor, std::vector<MeshAxis>& axes,
                      PresetOptions& options);

// Splits the stacks of experts over `draft.experts`, by expert (experts.cc). Fails where they do not divide, and where tokens cannot be
// divided among ranks that were to share what each of them has.
Status ShareExperts(PlanDraft& draft);
// Whether a parameter is a stack of experts that ranks share.
bool IsShared(const PlanDraft& draft, const PlanParam& param);
// How what flows into a layer with shared experts lies, where tensor-parallel ranks are among those that share: each has its own tokens.
BoundaryPlacement OwnTokens(const PlanDraft& draft, AxisId tensor);

// In the order of their axes in a mesh, the slowest first.
std::span<const Preset* const> Presets();

// The plan for a captured graph. `rules` say what tensor parallelism may split; a parameter that they do not name is whole there.
// Fails if an axis is missing from the mesh, or is that of two presets.
Result<Plan> MakePlan(const Graph& graph, const Mesh& mesh, const ParallelRules& rules,
                      const PresetOptions& options);

}  // namespace heddle::compile
