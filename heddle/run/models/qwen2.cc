// Qwen 2 and 2.5: like Llama, with biases of queries, keys and values, and rotary embedding of
// halves.
#include "heddle/run/capture/scope.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/hf_config.h"
#include "heddle/run/models/llama.h"

namespace heddle::run {
namespace qwen2 {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, bool tied, int64_t vocab = 151936, double norm_eps = 1e-6) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.max_length = tied ? 32768 : 131072;
  c.tied = tied;
  c.norm_eps = norm_eps;
  c.rope.theta = 1e6;
  return c;
}

// The debug model is not published. 3B, 14B and 32B are models of Qwen 2.5; the others have the
// same constants in both.
std::vector<ModelConfig> Flavors() {
  return {
      Flavor("debugmodel", 256, 6, 16, 4, 768, true, 2048),
      Flavor("0.5B", 896, 24, 14, 2, 4864, true),
      Flavor("1.5B", 1536, 28, 12, 2, 8960, true),
      Flavor("3B", 2048, 36, 16, 2, 11008, true),
      Flavor("7B", 3584, 28, 28, 4, 18944, false, 152064),
      Flavor("14B", 5120, 48, 40, 8, 13824, false, 152064, 1e-5),
      Flavor("32B", 5120, 64, 40, 8, 27648, false, 152064, 1e-5),
      Flavor("72B", 8192, 80, 64, 8, 29568, false, 152064),
  };
}

at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x,
                     int64_t layer) {
  ScopeGuard scope("attention");
  at::Tensor cosines = weights.Rotations("rope_cos");
  at::Tensor sines = weights.Rotations("rope_sin");
  return GroupedQueryAttention(weights, c, x, layer,
                               [&](const at::Tensor& heads, std::string_view) {
                                 return RotateHalves(heads, cosines, sines);
                               });
}

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  return DecoderParts(config, HalfRotations(config, batch), {.add_attention = AddBiasedAttention});
}

compile::ParallelRules Rules() {
  compile::ParallelRules rules = DecoderRules();
  for (const char* name : {"**.attention.wq.bias", "**.attention.wk.bias", "**.attention.wv.bias"})
    rules.weights.push_back({name, 0});
  return rules;
}

void ClassFields(HfConfig& file, ModelConfig& c) {
  file.Int("head_dim", c.head_dim, 0);
  file.Fixed("use_sliding_window", false);
}

constexpr HfClass kHfClasses[] = {{.type = "qwen2",
                                   .name = "Qwen2ForCausalLM",
                                   .common = {.kv_heads = 32},
                                   .fields = ClassFields}};
constexpr HfName kHfNames[] = {{"attention.wq.bias", "self_attn.q_proj.bias"},
                               {"attention.wk.bias", "self_attn.k_proj.bias"},
                               {"attention.wv.bias", "self_attn.v_proj.bias"}};

}  // namespace qwen2

HEDDLE_DEFINE_FAMILY(qwen2){
    .name = "qwen2",
    .flavors = qwen2::Flavors,
    .check = llama::CheckDense,
    .make = qwen2::Make,
    .init = PlainInit,
    .rules = qwen2::Rules,
    .attention = qwen2::Attention,
    .adapters = true,
    .hf = {.classes = qwen2::kHfClasses, .names = qwen2::kHfNames},
};

}  // namespace heddle::run
