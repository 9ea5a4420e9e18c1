#include "heddle/cli/torch/plan/auto_flags.h"

#include <algorithm>

#include "heddle/auto/alike.h"
#include "heddle/ir/mesh_flag.h"
#include "heddle/models/family.h"

namespace heddle {

void AutoFlags::Declare(Flags& flags) {
  flags.Section("Automatic parallelism");
  flags.Switch("--parallelism.auto", automatic,
               "find the placements that make the step fastest on --cluster");
  flags.Option("--mesh=AXES", mesh,
               "with --parallelism.auto: mesh axes, slowest first, as in dp=32,tp=8 (default: from "
               "the degrees)");
  time_limit.Declare(flags, "--parallelism.auto");
  flags.Requires("--time-limit", "--parallelism.auto");
}

Status AutoFlags::Check(const ParallelFlags& parallel) const {
  if (!automatic && !mesh.empty())
    return Error(Diag::kUsage,
                 "--mesh needs --parallelism.auto; without it, give degrees, as in "
                 "--parallelism.data_parallel_shard_degree=8");
  if (!automatic) return Done{};
  if (!parallel.plan_file.empty())
    return Error(Diag::kUsage,
                 "--plan conflicts with --parallelism.auto, which finds a plan; drop one");
  if (parallel.expert != 1)
    return Error(Diag::kUsage,
                 "--parallelism.expert_parallel_degree conflicts with --parallelism.auto, which "
                 "chooses it; drop one");
  if (!mesh.empty() && parallel.HasDegrees())
    return Error(Diag::kUsage, "--mesh conflicts with degrees of parallelism; drop one");
  ParallelFlags usual;
  auto check = [](std::string_view flag, const auto& given, const auto& other) -> Status {
    if (given == other) return Done{};
    return Error(Diag::kUsage, "--{} conflicts with --parallelism.auto, which chooses it; drop one",
                 flag);
  };
  HEDDLE_RETURN_IF_ERROR(check("parallelism.enable_sequence_parallel", parallel.sequence_parallel,
                               usual.sequence_parallel));
  HEDDLE_RETURN_IF_ERROR(
      check("parallelism.enable_loss_parallel", parallel.loss_parallel, usual.loss_parallel));
  HEDDLE_RETURN_IF_ERROR(
      check("parallelism.disable_loss_parallel", parallel.gather_logits, usual.gather_logits));
  HEDDLE_RETURN_IF_ERROR(
      check("parallelism.tensor_gradients", parallel.tensor_gradients, usual.tensor_gradients));
  return check("training.mixed_precision_reduce", parallel.reduce_type, usual.reduce_type);
}

Result<ParallelFlags::Layout> AutoFlags::MakeLayout(const ParallelFlags& parallel,
                                                    const ModelConfig& config) const {
  if (mesh.empty()) return parallel.MakeLayout(config);
  ParallelFlags::Layout layout;
  HEDDLE_TRY(layout.mesh, ParseMeshFlag(mesh));
  layout.batch_ranks = BatchRanks(layout.mesh);
  return layout;
}

int64_t BatchRanks(const Mesh& mesh) {
  bool named = false;
  int64_t ranks = 1;
  for (const Preset* preset : Presets()) {
    // Expert parallelism cuts the axis in two.
    for (std::string_view part : {"", "_mod_ep", "_in_ep"}) {
      std::optional<AxisId> axis = mesh.Find(fmt::format("{}{}", preset->axis, part));
      if (!axis) continue;
      named = true;
      if (preset->splits_batch) ranks *= mesh[*axis].size;
    }
  }
  return named ? ranks : mesh.ranks();
}

Result<std::vector<RivalPlan>> PresetsOn(const Mesh& mesh, const Graph& graph,
                                         const ModelConfig& config) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes()) {
    if (axis.size > 1) axes.push_back(axis.name);
  }
  size_t count = Presets().size();
  std::vector<RivalPlan> out;
  for (uint32_t set = 1; set < uint32_t{1} << count; ++set) {
    if (static_cast<size_t>(__builtin_popcount(set)) != axes.size()) continue;
    PresetOptions options;
    std::string name;
    bool fits = true;
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      if ((set >> i & 1) == 0) continue;
      const std::string& axis = axes[at++];
      int64_t degree = mesh[*mesh.Find(axis)].size;
      options.axes.emplace(Presets()[i]->name, axis);
      name += fmt::format("{}{} over {}", name.empty() ? "" : ", ", Presets()[i]->name, axis);
      if (Presets()[i]->name == "tensor") fits &= CheckHeads(config, degree).ok();
    }
    if (!fits) continue;
    HEDDLE_TRY(Plan plan, MakePlan(graph, mesh, config.family->rules(), options));
    out.push_back({std::move(name), Shortened(std::move(plan), graph)});
  }
  return out;
}

}  // namespace heddle
