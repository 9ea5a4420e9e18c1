#include "heddle/compile/plan/presets/presets.h"

#include <algorithm>
#include <set>

#include "heddle/compile/plan/patterns.h"

namespace heddle::compile {

#define HEDDLE_PRESET(ident) extern const Preset kPreset_##ident;
#include "heddle/compile/plan/presets/preset_list.def"
#undef HEDDLE_PRESET

std::span<const Preset* const> Presets() {
  static constexpr const Preset* kPresets[] = {
#define HEDDLE_PRESET(ident) &kPreset_##ident,
#include "heddle/compile/plan/presets/preset_list.def"
#undef HEDDLE_PRESET
  };
  return kPresets;
}

namespace {

// The axis of each preset, in their order; nullopt for an unused preset.
Result<std::vector<std::optional<AxisId>>> FindAxes(const Mesh& mesh,
                                                    const PresetOptions& options) {
  std::vector<std::optional<AxisId>> axes;
  std::set<std::string_view> used;
  for (const Preset* preset : Presets()) {
    auto named = options.axes.find(preset->name);
    axes.emplace_back();
    if (named == options.axes.end()) continue;
    axes.back() = mesh.Find(named->second);
    if (!axes.back())
      return Error(Diag::kUnknownAxis, "`{}` is not an axis of the mesh [{}]", named->second,
                   Format(mesh));
    if (!used.insert(named->second).second)
      return Error(Diag::kAxisTwice, "axis `{}` is used for two kinds of parallelism",
                   named->second);
  }
  return axes;
}

// Finds the additional axes that expert parallelism needs.
Status FindExpertAxes(PlanDraft& draft) {
  const Mesh& mesh = draft.plan.mesh;
  auto find = [&](std::string_view name) -> Result<AxisId> {
    if (std::optional<AxisId> axis = mesh.Find(name)) return *axis;
    return Error(Diag::kUnknownAxis, "`{}` is not an axis of the mesh [{}]", name, Format(mesh));
  };
  if (!draft.options.inner_shard.empty()) {
    HEDDLE_TRY(AxisId inner, find(draft.options.inner_shard));
    if (!draft.data.Add(inner))
      return Error(Diag::kAxisTwice, "axis `{}` is used for two kinds of parallelism",
                   draft.options.inner_shard);
    draft.sharding.Add(inner);
  }
  for (const std::string& name : draft.options.experts) {
    HEDDLE_TRY(AxisId axis, find(name));
    draft.experts.Add(axis);
  }
  return Done{};
}

Axes InMeshOrder(const Axes& axes, const Mesh& mesh) {
  Axes ordered;
  for (size_t i = 0; i < mesh.axes().size(); ++i) {
    auto axis = static_cast<AxisId>(i);
    if (axes.contains(axis)) ordered.Add(axis);
  }
  return ordered;
}

// One statement for the whole batch, or one per tensor if some are single numbers.
void AddInputs(PlanDraft& draft) {
  if (draft.data.empty() && draft.context.empty()) return;
  Placement placement;
  placement.splits = {draft.data};
  std::vector<PlanInput> rows;
  bool has_numbers = false;
  for (const Input& input : draft.graph.inputs()) {
    if (input.role != InputRole::kBatch) continue;
    if (draft.graph.types().rank(draft.graph.type(input.value)) == 0) {
      has_numbers = true;
    } else {
      rows.push_back({input.label, placement, 1, 0});
    }
  }
  if (rows.empty()) return;
  if (!has_numbers) rows = {{"*", placement, 1, 0}};
  draft.plan.inputs = std::move(rows);
}

void AddParams(PlanDraft& draft) {
  for (const Input& input : draft.graph.inputs()) {
    if (input.role != InputRole::kParam) continue;
    size_t rank = draft.graph.types().rank(draft.graph.type(input.value));
    PlanParam param{.pattern = input.label, .unit = input.unit};
    param.store.splits.resize(rank);
    param.compute.splits.resize(rank);
    param.store_rank = param.compute_rank = rank;
    draft.plan.params.push_back(std::move(param));
  }
}

void AddLayers(PlanDraft& draft) {
  for (const LayerRule& rule : draft.rules.layers) {
    PlanModule module{.pattern = rule.pattern};
    if (rule.own_tokens) {
      module.local = draft.data;
      for (AxisId axis : draft.context) module.local.Add(axis);
      for (AxisId axis : draft.experts) module.local.Add(axis);
      module.experts = draft.experts;
      module.expert_times = draft.options.expert_times;
    }
    module.why = rule.why;
    draft.plan.modules.push_back(std::move(module));
  }
}

// Removes modules that the graph lacks, and those without any facts.
void DropEmptyModules(PlanDraft& draft) {
  std::set<std::string_view> paths = AllScopePaths(draft.graph);
  std::erase_if(draft.plan.modules, [&](const PlanModule& module) {
    if (!module.in && !module.out && module.local.empty() && module.context.empty() &&
        module.why == Why::kTensor)
      return true;
    return std::ranges::none_of(
        paths, [&](std::string_view path) { return MatchesPattern(module.pattern, path); });
  });
}

}  // namespace

Result<Plan> MakePlan(const Graph& graph, const Mesh& mesh, const ParallelRules& rules,
                      const PresetOptions& options) {
  HEDDLE_TRY(std::vector<std::optional<AxisId>> axes, FindAxes(mesh, options));
  PlanDraft draft{graph, rules, options, {}};
  draft.plan.mesh = mesh;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] && Presets()[i]->splits_batch) draft.data.Add(*axes[i]);
    if (axes[i] && Presets()[i]->splits_params) draft.sharding.Add(*axes[i]);
    if (axes[i] && Presets()[i]->role == AxisRole::kContext) draft.context.Add(*axes[i]);
  }
  HEDDLE_RETURN_IF_ERROR(FindExpertAxes(draft));
  draft.sharding = InMeshOrder(draft.sharding, mesh);
  AddInputs(draft);
  AddParams(draft);
  AddLayers(draft);
  HEDDLE_RETURN_IF_ERROR(ShareExperts(draft));
  // From the fastest axis to the slowest: data parallelism splits the parts of tensor parallelism
  // further.
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i]) Presets()[i]->apply(draft, *axes[i]);
  }
  DropEmptyModules(draft);
  for (PlanParam& param : draft.plan.params) {
    param.store.Normalize();
    param.compute.Normalize();
  }
  return std::move(draft.plan);
}

}  // namespace heddle::compile
