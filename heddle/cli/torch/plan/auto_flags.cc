#include "heddle/cli/torch/plan/auto_flags.h"

#include "heddle/core/ir/mesh_flag.h"

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
                                                    const run::ModelConfig& config) const {
  if (mesh.empty()) return parallel.MakeLayout(config);
  ParallelFlags::Layout layout;
  HEDDLE_TRY(layout.mesh, ParseMeshFlag(mesh));
  layout.batch_ranks = BatchRanks(layout.mesh);
  return layout;
}

}  // namespace heddle
