#include "heddle/cli/torch/parallel_flags.h"

#include <charconv>
#include <cmath>

#include "heddle/base/scanner.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 20;

Status CheckDegree(std::string_view flag, int64_t degree) {
  if (degree >= 1 && degree <= kMostRanks) return Done{};
  return Error(Diag::kMeshSize, "--parallelism.{} is {}, expected 1 to {}", flag, degree,
               kMostRanks);
}

Status CheckHeads(std::string_view what, int64_t heads, int64_t tensor) {
  if (heads % tensor == 0) return Done{};
  return Error(Diag::kMeshSize,
               "{} {} do not divide among --parallelism.tensor_parallel_degree={} ranks", heads,
               what, tensor);
}

}  // namespace

void ParallelFlags::Declare(Flags& flags) {
  flags.Option(
      "--parallelism.data_parallel_replicate_degree", replicate,
      "ranks that hold copies of the parameters and parts of the batch (DDP; with sharding, HSDP)");
  flags.Option(
      "--parallelism.data_parallel_shard_degree", shard,
      "ranks that hold parts of the parameters and of the batch (FSDP); -1 for what is left of "
      "--world_size");
  flags.Option("--parallelism.tensor_parallel_degree", tensor,
               "ranks that share heads, hidden units and the vocabulary");
  flags.Option(
      "--parallelism.enable_sequence_parallel", sequence_parallel,
      "true or false: split activations between blocks by position over the tensor-parallel ranks");
  flags.Switch("--parallelism.disable_loss_parallel", gather_logits,
               "gather logits before the loss, instead of splitting the loss by vocabulary");
  flags.Option("--parallelism.axis_names", axis_names,
               "names of the mesh axes: replicate, shard, tensor");
  flags.Option(
      "--parallelism.gradients", gradients,
      "how gradients of ranks combine: sum, average, or a number that the sum is divided by");
  flags.Option("--parallelism.tensor_gradients", tensor_gradients,
               "narrow: gradients pending over the tensor-parallel ranks are reduced in the type "
               "they were computed "
               "in, as eager does; wide: in the parameter's type");
  flags.Option("--world_size", world, "the number of ranks (default: the product of the degrees)",
               0);
}

Result<ParallelFlags::Layout> ParallelFlags::MakeLayout(const ModelConfig& config) const {
  int64_t shard_degree = shard;
  if (shard == -1) {
    if (world == 0)
      return Error(Diag::kMeshSize,
                   "--parallelism.data_parallel_shard_degree=-1 needs --world_size");
    shard_degree =
        replicate > 0 && tensor > 0 ? std::max<int64_t>(world / replicate / tensor, 1) : 1;
  }
  HEDDLE_RETURN_IF_ERROR(CheckDegree("data_parallel_replicate_degree", replicate));
  HEDDLE_RETURN_IF_ERROR(CheckDegree("data_parallel_shard_degree", shard_degree));
  HEDDLE_RETURN_IF_ERROR(CheckDegree("tensor_parallel_degree", tensor));
  int64_t ranks = 0;
  if (__builtin_mul_overflow(replicate * shard_degree, tensor, &ranks) || ranks > kMostRanks)
    return Error(Diag::kMeshSize, "the degrees {} x {} x {} make more than {} ranks", replicate,
                 shard_degree, tensor, kMostRanks);
  if (world != 0 && ranks != world) {
    return Error(Diag::kMeshSize, "the degrees {} x {} x {} make {} ranks, --world_size is {}",
                 replicate, shard_degree, tensor, ranks, world);
  }
  if (config.n_heads > 1 || config.mla.kv_rank > 0) {
    HEDDLE_RETURN_IF_ERROR(CheckHeads("heads", config.n_heads, tensor));
    if (config.mla.kv_rank == 0)
      HEDDLE_RETURN_IF_ERROR(CheckHeads("key and value heads", config.n_kv_heads, tensor));
  }
  if (sequence_parallel != "true" && sequence_parallel != "false")
    return Error(Diag::kBadChoice,
                 "--parallelism.enable_sequence_parallel is `{}`; it is true or false",
                 sequence_parallel);
  std::vector<std::string_view> names = Split(axis_names, ',');
  if (names.size() != 3)
    return Error(Diag::kMeshSize, "--parallelism.axis_names has {} names, expected 3",
                 names.size());
  for (std::string_view& name : names) {
    name = Trim(name);
    Scanner scan(name);
    if (name.empty() || scan.TakeRun(CharClass::kWord) != name)
      return Error(Diag::kMeshSize,
                   "`{}` in --parallelism.axis_names is not a name of letters, digits and _", name);
  }

  Layout layout;
  layout.batch_ranks = replicate * shard_degree;
  layout.preset.sequence_parallel = sequence_parallel == "true";
  layout.preset.split_loss = !gather_logits;
  std::vector<MeshAxis> axes;
  auto add = [&](size_t at, int64_t degree, std::string& purpose) -> Status {
    if (degree == 1) return Done{};
    purpose = names[at];
    for (const MeshAxis& axis : axes) {
      if (axis.name == purpose)
        return Error(Diag::kAxisTwice, "axis `{}` is used for two kinds of parallelism", purpose);
    }
    axes.push_back({purpose, degree});
    return Done{};
  };
  HEDDLE_RETURN_IF_ERROR(add(0, replicate, layout.preset.replicate));
  HEDDLE_RETURN_IF_ERROR(add(1, shard_degree, layout.preset.shard));
  HEDDLE_RETURN_IF_ERROR(add(2, tensor, layout.preset.tensor));
  if (axes.empty()) {
    // One rank is a mesh, too.
    layout.preset.shard = names[1];
    axes.push_back({layout.preset.shard, 1});
  }
  layout.mesh = Mesh(std::move(axes));
  return layout;
}

Status ParallelFlags::SetGradients(Plan& plan) const {
  if (tensor_gradients != "narrow" && tensor_gradients != "wide")
    return Error(Diag::kBadChoice, "--parallelism.tensor_gradients is `{}`; it is narrow or wide",
                 tensor_gradients);
  plan.wide_tensor_grads = tensor_gradients == "wide";
  if (gradients == "sum") return Done{};
  if (gradients == "average") {
    plan.average = true;
    return Done{};
  }
  double factor = 0;
  auto [end, error] =
      std::from_chars(gradients.data(), gradients.data() + gradients.size(), factor);
  if (error != std::errc() || end != gradients.data() + gradients.size() || !(factor > 0) ||
      !std::isfinite(factor)) {
    return Error(Diag::kBadChoice,
                 "--parallelism.gradients is `{}`; it is sum, average or a positive number",
                 gradients);
  }
  plan.grad_divisor = factor;
  return Done{};
}

}  // namespace heddle
