#include "heddle/models/config.h"

#include "heddle/base/text.h"

namespace heddle {
namespace {

constexpr std::string_view kFamilies[] = {"llama3", "qwen3", "deepseek_v3", "mlp", "linear"};

ModelConfig Llama3(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab = 128256, bool tied = false) {
  ModelConfig c;
  c.family = Family::kLlama3;
  c.rope_scaling = flavor == "debugmodel" ? 1.0 : 8.0;
  c.flavor = std::move(flavor);
  c.dim = dim;
  c.n_layers = layers;
  c.n_heads = heads;
  c.n_kv_heads = kv_heads;
  c.ffn_dim = ffn;
  c.vocab_size = vocab;
  c.tied = tied;
  return c;
}

ModelConfig Qwen3(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                  int64_t ffn, bool tied, int64_t vocab = 151936) {
  ModelConfig c;
  c.family = Family::kQwen3;
  c.flavor = std::move(flavor);
  c.dim = dim;
  c.n_layers = layers;
  c.n_heads = heads;
  c.n_kv_heads = kv_heads;
  c.head_dim = 128;
  c.ffn_dim = ffn;
  c.vocab_size = vocab;
  c.tied = tied;
  c.norm_eps = 1e-6;
  c.rope_theta = 1e6;
  return c;
}

ModelConfig Qwen3Moe(std::string flavor, int64_t dim, int64_t layers, int64_t heads,
                     int64_t kv_heads, int64_t ffn, int64_t experts, double theta = 1e6,
                     int64_t vocab = 151936) {
  ModelConfig c = Qwen3(std::move(flavor), dim, layers, heads, kv_heads, ffn, false, vocab);
  c.rope_theta = theta;
  c.moe = {.experts = experts, .top_k = 8, .ffn_dim = ffn, .normalize = true};
  return c;
}

ModelConfig DeepSeekV3(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t ffn,
                       int64_t vocab, MlaConfig mla, MoeConfig moe) {
  ModelConfig c;
  c.family = Family::kDeepSeekV3;
  c.flavor = std::move(flavor);
  c.dim = dim;
  c.n_layers = layers;
  c.n_heads = heads;
  c.n_kv_heads = heads;
  c.ffn_dim = ffn;
  c.vocab_size = vocab;
  c.rope_theta = 10000.0;
  c.rope_scaling = 40.0;
  c.mla = mla;
  c.mla.kv_rank = 512;
  c.moe = moe;
  c.moe.bias = true;
  return c;
}

ModelConfig Toy(Family family, std::string flavor, int64_t dim, int64_t layers, int64_t ffn) {
  ModelConfig c;
  c.family = family;
  c.flavor = std::move(flavor);
  c.dim = dim;
  c.n_layers = layers;
  c.ffn_dim = ffn;
  c.vocab_size = 64;
  return c;
}

std::vector<ModelConfig> MakeAll() {
  return {
      Llama3("debugmodel", 256, 6, 16, 16, 768, 2048),
      Llama3("1B", 2048, 16, 32, 8, 8192, 128256, true),
      Llama3("3B", 3072, 28, 24, 8, 8192, 128256, true),
      Llama3("8B", 4096, 32, 32, 8, 14336),
      Llama3("70B", 8192, 80, 64, 8, 28672),
      Llama3("405B", 16384, 126, 128, 8, 53248),
      Qwen3("debugmodel", 256, 8, 16, 8, 3072, true, 2048),
      Qwen3("0.6B", 1024, 28, 16, 8, 3072, true),
      Qwen3("1.7B", 2048, 28, 16, 8, 6144, true),
      Qwen3("4B", 2560, 36, 32, 8, 9728, true),
      Qwen3("8B", 4096, 36, 32, 8, 12288, false),
      Qwen3("14B", 5120, 40, 40, 8, 17408, false),
      Qwen3("32B", 5120, 64, 64, 8, 25600, false),
      Qwen3Moe("debugmodel_moe", 256, 8, 16, 8, 768, 64, 1e6, 2048),
      Qwen3Moe("30B-A3B", 2048, 48, 32, 4, 768, 128),
      Qwen3Moe("235B-A22B", 4096, 94, 64, 4, 1536, 128, 5e6),
      DeepSeekV3(
          "debugmodel", 256, 6, 16, 1024, 2048, {.mscale = 0.70},
          {.experts = 8, .top_k = 3, .ffn_dim = 256, .shared_experts = 2, .dense_layers = 1}),
      DeepSeekV3(
          "16B", 2048, 27, 16, 10944, 102400, {.mscale = 0.70},
          {.experts = 64, .top_k = 6, .ffn_dim = 1408, .shared_experts = 2, .dense_layers = 1}),
      DeepSeekV3("236B", 5120, 60, 128, 12288, 102400, {.q_rank = 1536},
                 {.experts = 160,
                  .top_k = 6,
                  .ffn_dim = 1536,
                  .shared_experts = 2,
                  .dense_layers = 1,
                  .route_scale = 16.0,
                  .groups = 8,
                  .limited_groups = 3}),
      DeepSeekV3("671B", 7168, 61, 128, 18432, 129280, {.q_rank = 1536},
                 {.experts = 256,
                  .top_k = 8,
                  .ffn_dim = 2048,
                  .shared_experts = 1,
                  .dense_layers = 3,
                  .sigmoid_scores = true,
                  .normalize = true,
                  .route_scale = 2.5,
                  .groups = 8,
                  .limited_groups = 4}),
      Toy(Family::kMlp, "small", 32, 2, 64),
      Toy(Family::kLinear, "small", 32, 1, 16),
  };
}

struct SizeField {
  std::string_view name;
  int64_t& (*get)(ModelConfig&);
};
constexpr SizeField kSizes[] = {
    {"dim", [](ModelConfig& c) -> int64_t& { return c.dim; }},
    {"n_layers", [](ModelConfig& c) -> int64_t& { return c.n_layers; }},
    {"n_heads", [](ModelConfig& c) -> int64_t& { return c.n_heads; }},
    {"n_kv_heads", [](ModelConfig& c) -> int64_t& { return c.n_kv_heads; }},
    {"head_dim", [](ModelConfig& c) -> int64_t& { return c.head_dim; }},
    {"ffn_dim", [](ModelConfig& c) -> int64_t& { return c.ffn_dim; }},
    {"vocab_size", [](ModelConfig& c) -> int64_t& { return c.vocab_size; }},
    {"moe.experts", [](ModelConfig& c) -> int64_t& { return c.moe.experts; }},
    {"moe.top_k", [](ModelConfig& c) -> int64_t& { return c.moe.top_k; }},
    {"moe.ffn_dim", [](ModelConfig& c) -> int64_t& { return c.moe.ffn_dim; }},
    {"moe.shared_experts", [](ModelConfig& c) -> int64_t& { return c.moe.shared_experts; }},
    {"moe.dense_layers", [](ModelConfig& c) -> int64_t& { return c.moe.dense_layers; }},
    {"moe.groups", [](ModelConfig& c) -> int64_t& { return c.moe.groups; }},
    {"moe.limited_groups", [](ModelConfig& c) -> int64_t& { return c.moe.limited_groups; }},
    {"mla.q_rank", [](ModelConfig& c) -> int64_t& { return c.mla.q_rank; }},
    {"mla.kv_rank", [](ModelConfig& c) -> int64_t& { return c.mla.kv_rank; }},
    {"mla.nope_dim", [](ModelConfig& c) -> int64_t& { return c.mla.nope_dim; }},
    {"mla.rope_dim", [](ModelConfig& c) -> int64_t& { return c.mla.rope_dim; }},
    {"mla.v_dim", [](ModelConfig& c) -> int64_t& { return c.mla.v_dim; }},
};

Status CheckMoe(const ModelConfig& c) {
  const MoeConfig& moe = c.moe;
  if (moe.experts == 0) return Done{};
  if (moe.top_k < 1 || moe.top_k > moe.experts) {
    return Error(Diag::kModelSize, "{} experts for each token of {} experts", moe.top_k,
                 moe.experts);
  }
  if (moe.ffn_dim < 1) return Error(Diag::kModelSize, "the experts' ffn_dim is {}", moe.ffn_dim);
  if (moe.groups > 0 && (moe.experts % moe.groups != 0 || moe.limited_groups < 1 ||
                         moe.limited_groups > moe.groups)) {
    return Error(Diag::kModelSize, "{} experts in {} groups, {} of them chosen from", moe.experts,
                 moe.groups, moe.limited_groups);
  }
  return Done{};
}

}  // namespace

std::string_view Name(Family family) { return kFamilies[static_cast<size_t>(family)]; }

const std::vector<ModelConfig>& AllModels() {
  static const std::vector<ModelConfig> models = MakeAll();
  return models;
}

Result<ModelConfig> FindModel(std::string_view family, std::string_view flavor) {
  bool known = false;
  std::vector<std::string_view> flavors;
  for (const ModelConfig& config : AllModels()) {
    if (Name(config.family) != family) continue;
    known = true;
    if (config.flavor == flavor) return config;
    flavors.push_back(config.flavor);
  }
  if (!known)
    return Error(Diag::kUnknownModel, "unknown model `{}`{}", family,
                 NearestHint(family, kFamilies));
  std::string list;
  for (std::string_view name : flavors) list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  return Error(Diag::kUnknownModel, "model `{}` has no flavor `{}`{}; it has {}", family, flavor,
               NearestHint(flavor, flavors), list);
}

Status OverrideSize(ModelConfig& config, std::string_view name, int64_t value) {
  for (const SizeField& field : kSizes) {
    if (field.name != name) continue;
    field.get(config) = value;
    return Done{};
  }
  return Error(Diag::kModelSize, "models have no size `{}`{}", name,
               NearestHint(name, OverridableSizes()));
}

std::vector<std::string_view> OverridableSizes() {
  std::vector<std::string_view> names;
  for (const SizeField& field : kSizes) names.push_back(field.name);
  return names;
}

Status CheckConfig(const ModelConfig& c) {
  if (c.n_layers < 1)
    return Error(Diag::kModelSize, "n_layers is {}; a model has at least one layer", c.n_layers);
  ModelConfig copy = c;
  for (const SizeField& field : kSizes) {
    int64_t value = field.get(copy);
    if (value < 0 || value > (int64_t{1} << 31))
      return Error(Diag::kModelSize, "{} is {}, expected 0 to 2^31", field.name, value);
  }
  if (c.dim < 1 || c.vocab_size < 1)
    return Error(Diag::kModelSize, "dim is {} and vocab_size {}", c.dim, c.vocab_size);
  if (c.family == Family::kMlp || c.family == Family::kLinear) return Done{};
  // Latent attention has as many key heads as query heads, whatever is configured.
  int64_t kv_heads = c.mla.kv_rank > 0 ? c.n_heads : c.n_kv_heads;
  if (c.n_heads < 1 || kv_heads < 1 || c.n_heads % kv_heads != 0) {
    return Error(Diag::kModelSize, "{} query heads do not divide among {} key heads", c.n_heads,
                 c.n_kv_heads);
  }
  if (c.head_dim == 0 && c.dim % c.n_heads != 0)
    return Error(Diag::kModelSize, "dim {} does not divide into {} heads", c.dim, c.n_heads);
  int64_t rotated = c.mla.kv_rank > 0 ? c.mla.rope_dim : c.head_size();
  if (rotated % 2 != 0)
    return Error(Diag::kModelSize, "head size {} is odd; rotary embedding turns pairs", rotated);
  if (c.ffn_dim < 1) return Error(Diag::kModelSize, "ffn_dim is {}", c.ffn_dim);
  return CheckMoe(c);
}

}  // namespace heddle
