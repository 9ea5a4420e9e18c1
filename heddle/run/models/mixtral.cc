// Mixtral: Llama's attention, and experts in every layer.
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/hf_config.h"
#include "heddle/run/models/llama.h"

namespace heddle::run {
namespace mixtral {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab, int64_t length) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.max_length = length;
  c.rope.theta = 1e6;
  c.moe = {.experts = 8, .top_k = 2, .ffn_dim = ffn, .normalize = true};
  return c;
}

// The debug model is not published.
std::vector<ModelConfig> Flavors() {
  return {
      Flavor("debugmodel", 256, 6, 16, 4, 256, 2048, 32768),
      Flavor("8x7B", 4096, 32, 32, 8, 14336, 32000, 32768),
      Flavor("8x22B", 6144, 56, 48, 8, 16384, 32768, 65536),
  };
}

compile::ParallelRules Rules() {
  compile::ParallelRules rules = DecoderRules();
  AddMoeRules(rules);
  return rules;
}

void ClassFields(HfConfig& file, ModelConfig& c) {
  MoeConfig& moe = c.moe;
  RequireSoftmaxMixture(file, moe);
  file.Require(moe.normalize, "normalized scores only");
  file.Require(moe.dense_layers == 0, "no dense layers");
  file.Require(moe.ffn_dim == c.ffn_dim, "experts of ffn_dim hidden units only");
  file.Int("head_dim", c.head_dim, 0);
  file.Window("sliding_window", c.window, 0);
  file.Int("num_local_experts", moe.experts, 8);
  file.Int("num_experts_per_tok", moe.top_k, 2);
  file.Expect("router_jitter_noise", 0.0);
  if (!file.reading()) return;
  moe.ffn_dim = c.ffn_dim;
  moe.normalize = true;
}

constexpr HfClass kHfClasses[] = {{.type = "mixtral",
                                   .name = "MixtralForCausalLM",
                                   .has_experts = true,
                                   .common = {.norm_eps = 1e-5, .rope_theta = 1e6, .kv_heads = 8},
                                   .fields = ClassFields}};
constexpr HfName kHfNames[] = {
    llama::kHfNames[0],
    llama::kHfNames[1],
    {"moe.router.gate.weight", "block_sparse_moe.gate.weight"},
    {"moe.routed_experts.inner_experts.w1_EFD", "block_sparse_moe.experts.*.w1.weight"},
    {"moe.routed_experts.inner_experts.w2_EDF", "block_sparse_moe.experts.*.w2.weight"},
    {"moe.routed_experts.inner_experts.w3_EFD", "block_sparse_moe.experts.*.w3.weight"},
};

}  // namespace mixtral

HEDDLE_DEFINE_FAMILY(mixtral){
    .name = "mixtral",
    .flavors = mixtral::Flavors,
    .check = CheckDecoder,
    .make = llama::Make,
    .init = DecoderInit,
    .rules = mixtral::Rules,
    .attention = llama::Attention,
    .hf = {.classes = mixtral::kHfClasses, .names = mixtral::kHfNames},
};

}  // namespace heddle::run
