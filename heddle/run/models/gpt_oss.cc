// gpt-oss: experts in every layer with biases and a clamped gate, attention with sinks and biases,
// and a sliding window in every second layer.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

#include "heddle/run/capture/scope.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/hf_config.h"

namespace heddle::run {
namespace gpt_oss {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab, int64_t experts) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.head_dim = 64;
  c.window = 128;
  c.global_every = 2;
  c.rope.theta = 150000;
  c.rope.scaling = RopeScaling::kYarn;
  c.rope.factor = 32;
  c.rope.original_length = 4096;
  c.rope.truncate = false;
  c.rope.attention_factor = 0.1 * std::log(c.rope.factor) + 1.0;
  c.moe = {.experts = experts, .top_k = 4, .ffn_dim = ffn, .normalize = true};
  return c;
}

// The debug model is not published.
std::vector<ModelConfig> Flavors() {
  ModelConfig debug = Flavor("debugmodel", 256, 6, 16, 4, 256, 2048, 8);
  debug.head_dim = 32;
  debug.window = 8;
  return {
      debug,
      Flavor("20B", 2880, 24, 64, 8, 2880, 201088, 32),
      Flavor("120B", 2880, 36, 64, 8, 2880, 201088, 128),
  };
}

at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x,
                     int64_t layer) {
  ScopeGuard scope("attention");
  at::Tensor cosines = weights.Rotations("rope_cos");
  at::Tensor sines = weights.Rotations("rope_sin");
  auto rotate = [&](const at::Tensor& heads, std::string_view) {
    return RotateHalves(heads, cosines, sines);
  };
  return GroupedQueryAttention(weights, c, x, layer, rotate);
}

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  auto add_attention = [](ParamList& params, const ModelConfig& c, const std::string& unit) {
    params.Add(unit + ".attention.sinks", {c.n_heads}, unit);
    AddBiasedAttention(params, c, unit);
  };
  return DecoderParts(config, HalfRotations(config, batch),
                      {.add_attention = add_attention, .output_biases = true});
}

// Returns (up + 1) gate sigmoid(1.702 gate), with both limited.
at::Tensor Gate(const at::Tensor& gate, const at::Tensor& up) {
  constexpr double kLimit = 7.0;
  at::Tensor low = at::clamp(gate, std::nullopt, kLimit);
  at::Tensor both = at::clamp(up, -kLimit, kLimit);
  at::Tensor share = at::sigmoid(at::mul(low, 1.702));
  at::Tensor glu = at::mul(low, share);
  return at::mul(at::add(both, 1.0), glu);
}

compile::ParallelRules Rules() {
  compile::ParallelRules rules = DecoderRules();
  AddMoeRules(rules);
  for (const char* name : {"**.attention.wq.bias", "**.attention.wk.bias", "**.attention.wv.bias",
                           "**.attention.sinks"})
    rules.weights.push_back({name, 0});
  for (std::string_view name : kExpertBiases) {
    std::string pattern = fmt::format("**.{}", name);
    rules.experts.push_back(pattern);
    if (name != kExpertBiases[1]) rules.weights.push_back({pattern, 1});
  }
  return rules;
}

Status Check(const ModelConfig& c) {
  if (c.moe.experts < 1 || c.moe.dense_layers > 0 || c.moe.shared_experts > 0)
    return Error(Diag::kModelSize,
                 "gpt_oss has {} experts, {} shared experts and {} dense layers; it supports "
                 "routed experts in every layer only",
                 c.moe.experts, c.moe.shared_experts, c.moe.dense_layers);
  if (c.dim < kBiasColumns)
    return Error(Diag::kModelSize, "dim is {}, expected at least {}", c.dim, kBiasColumns);
  return CheckDecoder(c);
}

void ClassFields(HfConfig& file, ModelConfig& c) {
  MoeConfig& moe = c.moe;
  RequireSoftmaxMixture(file, moe);
  file.Require(moe.normalize, "normalized scores only");
  file.Require(moe.ffn_dim == c.ffn_dim, "experts of ffn_dim hidden units only");
  file.Int("head_dim", c.head_dim, 64);
  file.Int("num_local_experts", moe.experts, 128);
  file.Int("num_experts_per_tok", moe.top_k, 4);
  file.Expect("swiglu_limit", 7.0);
  if (!file.reading()) {
    // Without the field, the class has a default of yarn.
    if (c.rope.scaling == RopeScaling::kNone)
      file.Write("rope_scaling", {{"rope_type", "default"}});
    return;
  }
  if (!file.Find("rope_parameters") && !file.Find("rope_scaling"))
    file.Wrong("rope_scaling", "is missing; expected default or yarn");
  moe.ffn_dim = c.ffn_dim;
  moe.normalize = true;
}

constexpr HfClass kHfClasses[] = {{.type = "gpt_oss",
                                   .name = "GptOssForCausalLM",
                                   .has_experts = true,
                                   .common = {.norm_eps = 1e-5,
                                              .rope_theta = 150000,
                                              .kv_heads = 8,
                                              .attention_bias = true,
                                              .global_every = 2,
                                              .window = 128},
                                   .fields = ClassFields}};

HfRows Even(const ModelConfig& c) { return {0, c.moe.ffn_dim, 2 * c.moe.ffn_dim, 2}; }
HfRows Odd(const ModelConfig& c) { return {1, c.moe.ffn_dim, 2 * c.moe.ffn_dim, 2}; }
constexpr std::string_view kGateUp = "mlp.experts.gate_up_proj";
constexpr std::string_view kGateUpBias = "mlp.experts.gate_up_proj_bias";

constexpr HfName kHfNames[] = {
    {"attention.wq.bias", "self_attn.q_proj.bias"},
    {"attention.wk.bias", "self_attn.k_proj.bias"},
    {"attention.wv.bias", "self_attn.v_proj.bias"},
    {"attention_output.bias", "self_attn.o_proj.bias"},
    {"attention.sinks", "self_attn.sinks"},
    {"moe.router.gate.weight", "mlp.router.weight"},
    {"moe.router.gate.bias", "mlp.router.bias"},
    {.ours = "moe.routed_experts.inner_experts.w1_EFD",
     .theirs = kGateUp,
     .rows = Even,
     .transposed = true},
    {.ours = "moe.routed_experts.inner_experts.w3_EFD",
     .theirs = kGateUp,
     .rows = Odd,
     .transposed = true},
    {.ours = "moe.routed_experts.inner_experts.w2_EDF",
     .theirs = "mlp.experts.down_proj",
     .transposed = true},
    {.ours = "moe.routed_experts.inner_experts.w1_bias_EF1",
     .theirs = kGateUpBias,
     .rows = Even,
     .columns = true},
    {.ours = "moe.routed_experts.inner_experts.w3_bias_EF1",
     .theirs = kGateUpBias,
     .rows = Odd,
     .columns = true},
    {.ours = "moe.routed_experts.inner_experts.w2_bias_ED1",
     .theirs = "mlp.experts.down_proj_bias",
     .columns = true},
};

}  // namespace gpt_oss

// Tensor-parallel ranks would add the experts' last bias several times.
HEDDLE_DEFINE_FAMILY(gpt_oss){
    .name = "gpt_oss",
    .flavors = gpt_oss::Flavors,
    .check = gpt_oss::Check,
    .make = gpt_oss::Make,
    .init = PlainInit,
    .rules = gpt_oss::Rules,
    .attention = gpt_oss::Attention,
    .heads_apart = false,
    .sinks = true,
    .expert_gate = gpt_oss::Gate,
    .expert_biases = true,
    .hf = {.classes = gpt_oss::kHfClasses, .names = gpt_oss::kHfNames},
};

}  // namespace heddle::run
