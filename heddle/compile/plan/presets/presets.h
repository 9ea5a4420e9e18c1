// Presets: plans for common kinds of parallelism, and their combinations.
//
// Each preset is one kind of parallelism with its own mesh axis, in its own file. `replicate` and
// `shard` split the batch. Over `replicate`, parameters are replicated (DDP); over `shard`, they
// are sharded (FSDP); both together are HSDP. `tensor` splits heads, hidden units and the
// vocabulary and, by default, activations between blocks by position. `context` splits sequences
// by position everywhere, and shards parameters together with `shard`. Expert parallelism has no
// axis of its own: it uses the inner ranks of `shard`, and those of `context` and `tensor`, for the
// experts.
//
// A new preset is a file with HEDDLE_DEFINE_PRESET and a line in preset_list.def. Its flags and
// axes follow.
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
  // Maps names of presets to mesh axes. A preset without an axis is unused.
  std::map<std::string, std::string, std::less<>> axes = {};
  bool sequence_parallel = true;
  // The loss works on logits that are split by vocabulary; otherwise they are gathered.
  bool split_loss = true;
  // A second axis of `shard`, inside its own axis, if expert parallelism uses only some of these
  // ranks.
  std::string inner_shard = {};
  // The axes whose ranks share experts, in rank order; empty without expert parallelism. If the
  // axis of `tensor` is among them, its ranks route their own tokens and share only the experts of
  // the layer.
  std::vector<std::string> experts = {};
  // Context-parallel ranks exchange positions for heads in attention, instead of gathering keys and
  // values.
  bool context_heads = false;
  // Keys and values travel around context-parallel ranks in parts, instead of being gathered.
  bool context_ring = false;
  // The maximum number of rows that a rank accepts for its experts, in multiples of its own; 0: all
  // rows.
  int64_t expert_times = 0;
};

// A plan under construction by presets.
struct PlanDraft {
  const Graph& graph;
  const ParallelRules& rules;
  const PresetOptions& options;
  // Has an entry for every parameter, in the order of the graph's inputs, with a split list for
  // each dimension.
  Plan plan;
  // The axes that split the batch, the outermost first.
  Axes data = {};
  // The axes of `data` that also shard parameters.
  Axes sharding = {};
  // The axes whose ranks share experts.
  Axes experts = {};
  // The axes that split sequences by position.
  Axes context = {};
};

struct Preset {
  // `shard`
  std::string_view name;
  // The role of its axis.
  AxisRole role = AxisRole::kNone;
  // The flag for the number of ranks, without `--parallelism.`, and its help.
  std::string_view degree_flag;
  std::string_view help;
  bool splits_batch = false;
  // Whether parameters are sharded over the axis.
  bool splits_params = false;
  // Adds the statements of the preset for `axis` to the draft.
  void (*apply)(PlanDraft& draft, AxisId axis) = nullptr;

  // The default name of its axis: `dp`.
  constexpr std::string_view axis() const { return UsualName(role); }
};

// Chooses `degree` consecutive ranks to share experts: all ranks of `tensor`, if `with_tensor`, all
// of `context`, and inner ranks of `shard`. Splits the axis of `shard` into `dp_mod_ep` and
// `dp_in_ep` if only some of its ranks share.
void ChooseExpertAxes(int64_t degree, bool with_tensor, std::vector<MeshAxis>& axes,
                      PresetOptions& options);

// Shards parameters over `draft.sharding` (shard.cc).
void ShardParams(PlanDraft& draft);

// Splits the stacks of experts over `draft.experts`, by expert (experts.cc). Fails if the ranks do
// not divide the experts, or if tokens cannot be divided among ranks that would share them.
Status ShareExperts(PlanDraft& draft);
// Whether a parameter is a stack of experts that ranks share.
bool IsShared(const PlanDraft& draft, const PlanParam& param);
// The placement of inputs of a module with shared experts if tensor-parallel ranks share them: each
// rank has its own tokens.
BoundaryPlacement OwnTokens(const PlanDraft& draft, AxisId tensor);

// In the order of their mesh axes, the slowest first.
std::span<const Preset* const> Presets();

// Makes the plan for a captured graph. `rules` state what tensor parallelism may split; it
// replicates parameters without a rule. Fails if an axis is missing from the mesh, or belongs to
// two presets.
Result<Plan> MakePlan(const Graph& graph, const Mesh& mesh, const ParallelRules& rules,
                      const PresetOptions& options);

}  // namespace heddle::compile
