#include "heddle/run/models/config.h"

#include "heddle/core/base/text.h"
#include "heddle/run/models/family.h"

namespace heddle::run {
namespace {

// Larger than any real model, so that typing errors are found. Products of two sizes fit into 64
// bits.
constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMostSize = int64_t{1} << 24;

// Flags and files have checked that numbers are finite and not negative. These ranges keep the
// derived frequencies finite.
Status CheckRope(const RopeConfig& rope) {
  if (rope.theta <= 1.0)
    return Error(Diag::kModelSize, "rope_theta is {}, expected more than 1", rope.theta);
  if (rope.local_theta != 0 && rope.local_theta <= 1.0)
    return Error(Diag::kModelSize, "rope_local_theta is {}, expected 0 or more than 1",
                 rope.local_theta);
  if (rope.scaling == RopeScaling::kNone) return Done{};
  if (rope.factor < 1.0 || rope.original_length < 1)
    return Error(Diag::kModelSize,
                 "rope_scaling.factor is {} and rope_scaling.original_length {}; both must be at "
                 "least 1",
                 rope.factor, rope.original_length);
  if (rope.scaling == RopeScaling::kLlama &&
      (rope.low_freq <= 0 || rope.high_freq <= rope.low_freq))
    return Error(
        Diag::kModelSize,
        "rope_scaling.low_freq is {} and rope_scaling.high_freq {}; expected 0 < low < high",
        rope.low_freq, rope.high_freq);
  if (rope.scaling == RopeScaling::kYarn && (rope.slow <= 0 || rope.fast <= rope.slow))
    return Error(Diag::kModelSize,
                 "rope_scaling.slow is {} and rope_scaling.fast {}; expected 0 < slow < fast",
                 rope.slow, rope.fast);
  return Done{};
}

Status CheckMoe(const ModelConfig& c) {
  const MoeConfig& moe = c.moe;
  if (moe.experts == 0) return Done{};
  if (moe.top_k < 1 || moe.top_k > moe.experts) {
    return Error(Diag::kModelSize, "moe.top_k is {}, expected 1 to moe.experts, {}", moe.top_k,
                 moe.experts);
  }
  if (moe.ffn_dim < 1)
    return Error(Diag::kModelSize, "moe.ffn_dim is {}, expected at least 1", moe.ffn_dim);
  if (moe.groups > 0 && (moe.experts % moe.groups != 0 || moe.limited_groups < 1 ||
                         moe.limited_groups > moe.groups)) {
    return Error(Diag::kModelSize,
                 "cannot divide {} experts into {} groups and choose from {} of them", moe.experts,
                 moe.groups, moe.limited_groups);
  }
  return Done{};
}

}  // namespace

const std::vector<ModelConfig>& AllModels() {
  static const std::vector<ModelConfig> models = [] {
    std::vector<ModelConfig> all;
    for (const Family* family : Families()) {
      for (ModelConfig& config : family->flavors()) {
        config.family = family;
        all.push_back(std::move(config));
      }
    }
    return all;
  }();
  return models;
}

Result<ModelConfig> FindModel(std::string_view family, std::string_view flavor) {
  std::vector<std::string_view> families;
  std::vector<std::string_view> flavors;
  for (const Family* known : Families()) families.push_back(known->name);
  for (const ModelConfig& config : AllModels()) {
    if (config.family->name != family) continue;
    if (config.flavor == flavor) return config;
    flavors.push_back(config.flavor);
  }
  if (flavors.empty())
    return Error(Diag::kUnknownModel, "unknown model `{}`{}; models are {}", family,
                 NearestHint(family, families), Join(families, ", "));
  return Error(Diag::kUnknownModel, "model `{}` has no flavor `{}`{}; its flavors are {}", family,
               flavor, NearestHint(flavor, flavors), Join(flavors, ", "));
}

namespace {

Status CheckLora(const ModelConfig& c) {
  if (c.lora.rank == 0) return Done{};
  std::vector<std::string_view> families;
  for (const Family* family : Families()) {
    if (family->adapters) families.push_back(family->name);
  }
  if (!c.family->adapters)
    return Error(Diag::kModelSize, "lora.rank is {}, but {} does not support adapters; {} do",
                 c.lora.rank, c.family->name, Join(families, ", "));
  if (c.moe.experts > 0)
    return Error(Diag::kModelSize,
                 "lora.rank is {}, but the model has {} experts, which do not "
                 "support adapters",
                 c.lora.rank, c.moe.experts);
  if (c.lora.rank > c.dim)
    return Error(Diag::kModelSize, "lora.rank is {}, expected at most {}, the model's dim",
                 c.lora.rank, c.dim);
  if (!(c.lora.alpha > 0) || std::isinf(c.lora.alpha))
    return Error(Diag::kModelSize, "lora.alpha is {}, expected more than 0", c.lora.alpha);
  return Done{};
}

}  // namespace

Status CheckConfig(const ModelConfig& c) {
  if (c.n_layers < 1 || c.n_layers > kMostLayers)
    return Error(Diag::kModelSize, "n_layers is {}, expected 1 to {}", c.n_layers, kMostLayers);
  ModelConfig copy = c;
  for (const ConfigField& field : ConfigFields()) {
    if (field.size == nullptr) continue;
    int64_t value = field.size(copy);
    if (value < 0 || value > kMostSize)
      return Error(Diag::kModelSize, "{} is {}, expected 0 to {}", field.name, value, kMostSize);
  }
  if (c.dim < 1 || c.vocab_size < 1)
    return Error(Diag::kModelSize, "dim is {} and vocab_size {}; both must be at least 1", c.dim,
                 c.vocab_size);
  HEDDLE_RETURN_IF_ERROR(CheckRope(c.rope));
  HEDDLE_RETURN_IF_ERROR(CheckLora(c));
  return c.family->check != nullptr ? c.family->check(c) : Done{};
}

Status CheckDecoder(const ModelConfig& c) {
  if (c.rope.local_theta > 0 && !c.family->local_rope)
    return Error(Diag::kModelSize,
                 "rope_local_theta is {}, but all layers of {} have the same rotations",
                 c.rope.local_theta, c.family->name);
  // Latent attention has as many key heads as query heads; n_kv_heads has no effect.
  int64_t kv_heads = c.mla.kv_rank > 0 ? c.n_heads : c.n_kv_heads;
  if (c.n_heads < 1 || kv_heads < 1 || c.n_heads % kv_heads != 0) {
    return Error(Diag::kModelSize, "{} query heads are not a multiple of {} key heads", c.n_heads,
                 kv_heads);
  }
  if (c.head_dim == 0 && c.dim % c.n_heads != 0)
    return Error(Diag::kModelSize, "dim {} is not a multiple of {} heads", c.dim, c.n_heads);
  int64_t rotated = c.mla.kv_rank > 0 ? c.mla.rope_dim : c.head_size();
  if (rotated < 1 || rotated % 2 != 0)
    return Error(Diag::kModelSize, "head size {} is odd; rotary embedding rotates pairs", rotated);
  if (c.ffn_dim < 1)
    return Error(Diag::kModelSize, "ffn_dim is {}, expected at least 1", c.ffn_dim);
  return CheckMoe(c);
}

}  // namespace heddle::run
