// Qwen 3: like Llama, with a norm on every query and key head, rotary embedding of halves, and
// optionally experts.

#include "heddle/run/capture/scope.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/hf_config.h"

namespace heddle::run {
namespace qwen3 {

ModelConfig Dense(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                  int64_t ffn, bool tied, int64_t vocab = 151936) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.head_dim = 128;
  c.max_length = 40960;
  c.tied = tied;
  c.norm_eps = 1e-6;
  c.rope.theta = 1e6;
  return c;
}

ModelConfig Mixture(std::string flavor, int64_t dim, int64_t layers, int64_t heads,
                    int64_t kv_heads, int64_t ffn, int64_t expert_ffn, int64_t experts,
                    int64_t vocab = 151936) {
  ModelConfig c = Dense(std::move(flavor), dim, layers, heads, kv_heads, ffn, false, vocab);
  c.moe = {.experts = experts, .top_k = 8, .ffn_dim = expert_ffn, .normalize = true};
  return c;
}

std::vector<ModelConfig> Flavors() {
  return {
      Dense("debugmodel", 256, 8, 16, 8, 3072, true, 2048),
      Dense("0.6B", 1024, 28, 16, 8, 3072, true),
      Dense("1.7B", 2048, 28, 16, 8, 6144, true),
      Dense("4B", 2560, 36, 32, 8, 9728, true),
      Dense("8B", 4096, 36, 32, 8, 12288, false),
      Dense("14B", 5120, 40, 40, 8, 17408, false),
      Dense("32B", 5120, 64, 64, 8, 25600, false),
      Mixture("debugmodel_moe", 256, 8, 16, 8, 3072, 768, 64, 2048),
      Mixture("30B-A3B", 2048, 48, 32, 4, 6144, 768, 128),
      Mixture("235B-A22B", 4096, 94, 64, 4, 12288, 1536, 128),
  };
}

// 0.02 for all weights, but less for weights of a mixture that write to the residual stream, as in
// TorchTitan and Megatron.
InitDistribution WeightInit(const ModelConfig& c, std::string_view name, int64_t) {
  if (c.moe.experts > 0 && (name.ends_with(".wo.weight") || name.ends_with(".w2_EDF")))
    return DepthScaledInit(c.n_layers - 1);
  return {};
}

at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x,
                     int64_t layer) {
  ScopeGuard scope("attention");
  at::Tensor cosines = weights.Rotations("rope_cos");
  at::Tensor sines = weights.Rotations("rope_sin");
  return GroupedQueryAttention(
      weights, c, x, layer, [&](const at::Tensor& heads, std::string_view norm) {
        return RotateHalves(RmsNorm(weights, norm, heads, c.norm_eps), cosines, sines);
      });
}

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  auto add_attention = [](ParamList& params, const ModelConfig& c, const std::string& unit) {
    AddAttention(params, c, unit);
    params.Add(unit + ".attention.q_norm.weight", {c.head_size()}, unit);
    params.Add(unit + ".attention.k_norm.weight", {c.head_size()}, unit);
  };
  return DecoderParts(config, HalfRotations(config, batch), {.add_attention = add_attention});
}

compile::ParallelRules Rules() {
  compile::ParallelRules rules = DecoderRules();
  AddMoeRules(rules);
  return rules;
}

void DenseFields(HfConfig& file, ModelConfig& c) {
  file.Int("head_dim", c.head_dim, 128);
  file.Fixed("use_sliding_window", false);
}

// In Heddle's models, the dense layers come first.
void DenseLayers(HfConfig& file, ModelConfig& c) {
  auto layers = nlohmann::json::array();
  for (int64_t layer = 0; layer < c.moe.dense_layers; ++layer) layers.push_back(layer);
  file.Write("mlp_only_layers", layers);
  std::optional<JsonValue> dense = file.Find("mlp_only_layers");
  if (!dense) return;
  int64_t first = 0;
  bool good = dense->is_array();
  for (JsonValue layer : dense->items()) good &= layer.is_int() && layer.integer() == first++;
  if (!good) file.Wrong("mlp_only_layers", "are not the first layers");
  c.moe.dense_layers = first;
}

void MixtureFields(HfConfig& file, ModelConfig& c) {
  MoeConfig& moe = c.moe;
  RequireSoftmaxMixture(file, moe);
  file.Int("head_dim", c.head_dim, 0);
  file.Fixed("use_sliding_window", false);
  bool local = !file.Find("num_experts") && file.Find("num_local_experts");
  file.Int(local ? "num_local_experts" : "num_experts", moe.experts);
  file.Int("num_experts_per_tok", moe.top_k);
  file.Int("moe_intermediate_size", moe.ffn_dim);
  file.Bool("norm_topk_prob", moe.normalize, false);
  file.Fixed("decoder_sparse_step", 1);
  DenseLayers(file, c);
}

constexpr HfClass kHfClasses[] = {
    {.type = "qwen3", .name = "Qwen3ForCausalLM", .fields = DenseFields},
    {.type = "qwen3_moe",
     .name = "Qwen3MoeForCausalLM",
     .has_experts = true,
     .fields = MixtureFields}};
constexpr HfName kHfNames[] = {{"attention.q_norm.weight", "self_attn.q_norm.weight"},
                               {"attention.k_norm.weight", "self_attn.k_norm.weight"}};

// TorchTitan's training configuration. TorchTitan checkpoints selectively by default.
constexpr PublishedRun kPublished[] = {{"14B", 1, 1, 4, "selective"}};

}  // namespace qwen3

HEDDLE_DEFINE_FAMILY(qwen3){
    .name = "qwen3",
    .flavors = qwen3::Flavors,
    .check = CheckDecoder,
    .make = qwen3::Make,
    .init = qwen3::WeightInit,
    .rules = qwen3::Rules,
    .attention = qwen3::Attention,
    .adapters = true,
    .hf = {.classes = qwen3::kHfClasses, .names = qwen3::kHfNames},
    .published = qwen3::kPublished,
};

}  // namespace heddle::run
