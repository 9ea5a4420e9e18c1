// OLMo 2: norms after attention and feed-forward instead of before, and norms of all queries and of
// all keys of a position.
#include "heddle/run/capture/scope.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/hf_config.h"
#include "heddle/run/models/llama.h"

namespace heddle::run {
namespace olmo2 {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab = 100352) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.max_length = 4096;
  c.norm_eps = 1e-6;
  c.rope.theta = 5e5;
  return c;
}

// The debug model is not published.
std::vector<ModelConfig> Flavors() {
  return {
      Flavor("debugmodel", 256, 6, 16, 4, 768, 2048), Flavor("1B", 2048, 16, 16, 16, 8192),
      Flavor("7B", 4096, 32, 32, 32, 11008),          Flavor("13B", 5120, 40, 40, 40, 13824),
      Flavor("32B", 5120, 64, 40, 8, 27648),
  };
}

// Rotation is in f32.
at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x,
                     int64_t layer) {
  ScopeGuard scope("attention");
  at::Tensor cosines = weights.Rotations("rope_cos");
  at::Tensor sines = weights.Rotations("rope_sin");
  return GroupedQueryAttention(
      weights, c, x, layer, [&](const at::Tensor& heads, std::string_view norm) {
        at::Tensor all = RmsNorm(weights, norm, heads.flatten(-2), c.norm_eps).view(heads.sizes());
        return RotateHalves(Widened(all), cosines, sines).to(heads.scalar_type());
      });
}

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  auto add_attention = [](ParamList& params, const ModelConfig& c, const std::string& unit) {
    AddAttention(params, c, unit);
    params.Add(unit + ".attention.q_norm.weight", {c.n_heads * c.head_size()}, unit);
    params.Add(unit + ".attention.k_norm.weight", {c.n_kv_heads * c.head_size()}, unit);
  };
  return DecoderParts(config, HalfRotations(config, batch), {.add_attention = add_attention});
}

void ClassFields(HfConfig& file, ModelConfig& c) { file.Int("head_dim", c.head_dim, 0); }

constexpr HfClass kHfClasses[] = {{.type = "olmo2",
                                   .name = "Olmo2ForCausalLM",
                                   .common = {.norm_eps = 1e-5},
                                   .fields = ClassFields}};
constexpr HfName kHfNames[] = {{"attention_norm.weight", "post_attention_layernorm.weight"},
                               {"ffn_norm.weight", "post_feedforward_layernorm.weight"},
                               {"attention.q_norm.weight", "self_attn.q_norm.weight"},
                               {"attention.k_norm.weight", "self_attn.k_norm.weight"}};

}  // namespace olmo2

HEDDLE_DEFINE_FAMILY(olmo2){
    .name = "olmo2",
    .flavors = olmo2::Flavors,
    .check = llama::CheckDense,
    .make = olmo2::Make,
    .init = PlainInit,
    .rules = DecoderRules,
    .attention = olmo2::Attention,
    .heads_apart = false,
    .norms = NormPlace::kAfter,
    .hf = {.classes = olmo2::kHfClasses, .names = olmo2::kHfNames},
};

}  // namespace heddle::run
