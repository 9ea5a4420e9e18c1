// DeepSeek V3: multi-head latent attention (keys and values from a narrow latent), routed and
// shared experts.
#include <cmath>

#include <ATen/ops/cat.h>

#include "heddle/run/capture/scope.h"
#include "heddle/run/layers/attention.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/hf_config.h"

namespace heddle::run {
namespace deepseek_v3 {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t ffn,
                   int64_t vocab, MlaConfig mla, MoeConfig moe) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, heads, ffn, vocab);
  c.max_length = 163840;
  c.norm_eps = mla.norm_eps;
  c.rope.theta = 10000.0;
  c.rope.scaling = RopeScaling::kYarn;
  c.rope.factor = 40.0;
  c.rope.original_length = 4096;
  c.mla = mla;
  c.mla.kv_rank = 512;
  c.moe = moe;
  return c;
}

// 16B and 236B are models of DeepSeek V2: the best expert of a group is its score, and there is no
// bias.
std::vector<ModelConfig> Flavors() {
  return {
      Flavor("debugmodel", 256, 6, 16, 1024, 2048, {.mscale = 0.70, .norm_eps = 1e-5},
             {.experts = 8,
              .top_k = 3,
              .ffn_dim = 256,
              .shared_experts = 2,
              .dense_layers = 1,
              .bias = true}),
      Flavor("16B", 2048, 27, 16, 10944, 102400, {.mscale = 0.707},
             {.experts = 64, .top_k = 6, .ffn_dim = 1408, .shared_experts = 2, .dense_layers = 1}),
      Flavor("236B", 5120, 60, 128, 12288, 102400, {.q_rank = 1536},
             {.experts = 160,
              .top_k = 6,
              .ffn_dim = 1536,
              .shared_experts = 2,
              .dense_layers = 1,
              .route_scale = 16.0,
              .groups = 8,
              .limited_groups = 3,
              .group_score = GroupScore::kMax}),
      Flavor("671B", 7168, 61, 128, 18432, 129280, {.q_rank = 1536},
             {.experts = 256,
              .top_k = 8,
              .ffn_dim = 2048,
              .shared_experts = 1,
              .dense_layers = 3,
              .score = RouterScore::kSigmoid,
              .normalize = true,
              .route_scale = 2.5,
              .groups = 8,
              .limited_groups = 4,
              .bias = true}),
  };
}

InitDistribution WeightInit(const ModelConfig& c, std::string_view name, int64_t layer) {
  return name.ends_with(".router.gate.weight") ? DepthScaledInit(layer)
                                               : DecoderInit(c, name, layer);
}

at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x,
                     int64_t /*layer*/) {
  ScopeGuard scope("attention");
  const MlaConfig& mla = c.mla;
  int64_t batch = x.size(0);
  int64_t positions = x.size(1);
  at::Tensor rotations = weights.Rotations("rope");
  at::Tensor q = mla.q_rank == 0
                     ? Linear(weights, "wq", x)
                     : Linear(weights, "wq_b",
                              RmsNorm(weights, "q_norm", Linear(weights, "wq_a", x), mla.norm_eps));
  q = q.view({batch, positions, -1, mla.nope_dim + mla.rope_dim});
  std::vector<at::Tensor> q_parts = q.split_with_sizes({mla.nope_dim, mla.rope_dim}, -1);
  q = at::cat({q_parts[0], RotatePairs(q_parts[1], rotations)}, -1);

  std::vector<at::Tensor> latent =
      Linear(weights, "wkv_a", x).split_with_sizes({mla.kv_rank, mla.rope_dim}, -1);
  // All heads share one rotated part.
  at::Tensor k_rope = weights.Gathered(RotatePairs(latent[1].unsqueeze(2), rotations));
  at::Tensor normed = weights.Gathered(RmsNorm(weights, "kv_norm", latent[0], mla.norm_eps));
  at::Tensor kv = Linear(weights, "wkv_b", normed);
  kv = kv.view({batch, kv.size(1), -1, mla.nope_dim + mla.v_dim});
  std::vector<at::Tensor> kv_parts = kv.split_with_sizes({mla.nope_dim, mla.v_dim}, -1);
  {
    // A module of its own, so that plans can state how ranks get the part that heads share.
    ScopeGuard shared("k_rope");
    k_rope = k_rope.expand({-1, -1, q.size(2), -1});
  }
  at::Tensor k = at::cat({kv_parts[0], k_rope}, -1);

  double stretch =
      c.rope.scaling == RopeScaling::kYarn ? 0.1 * mla.mscale * std::log(c.rope.factor) + 1.0 : 1.0;
  double scale =
      std::pow(static_cast<double>(mla.nope_dim + mla.rope_dim), -0.5) * stretch * stretch;
  q = q.transpose(1, 2);
  k = k.transpose(1, 2);
  at::Tensor out = Attend(weights, q, k, kv_parts[1].transpose(1, 2), {.scale = scale});
  return Linear(weights, "wo", out.transpose(1, 2).reshape({batch, positions, -1}));
}

void AddLatentAttention(ParamList& params, const ModelConfig& c, const std::string& unit) {
  const std::string prefix = unit + ".attention";
  const MlaConfig& mla = c.mla;
  int64_t q_size = c.n_heads * (mla.nope_dim + mla.rope_dim);
  if (mla.q_rank == 0) {
    params.Add(prefix + ".wq.weight", {q_size, c.dim}, unit);
  } else {
    params.Add(prefix + ".wq_a.weight", {mla.q_rank, c.dim}, unit);
    params.Add(prefix + ".q_norm.weight", {mla.q_rank}, unit);
    params.Add(prefix + ".wq_b.weight", {q_size, mla.q_rank}, unit);
  }
  params.Add(prefix + ".wkv_a.weight", {mla.kv_rank + mla.rope_dim, c.dim}, unit);
  params.Add(prefix + ".kv_norm.weight", {mla.kv_rank}, unit);
  params.Add(prefix + ".wkv_b.weight", {c.n_heads * (mla.nope_dim + mla.v_dim), mla.kv_rank}, unit);
  params.Add(prefix + ".wo.weight", {c.dim, c.n_heads * mla.v_dim}, unit);
}

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  StepInput rope{"rope", InputRole::kBuffer, DType::kC64, {batch.seq_len, config.mla.rope_dim / 2}};
  return DecoderParts(config, {rope}, {.add_attention = AddLatentAttention, .norms_first = true});
}

compile::ParallelRules Rules() {
  compile::ParallelRules rules = DecoderRules();
  AddMoeRules(rules);
  // Splits the projections from latents by head. The latents are replicated.
  rules.weights.push_back({"**.attention.wq_b.weight", 0});
  rules.weights.push_back({"**.attention.wkv_b.weight", 0});
  rules.latents = {.narrow = "layers.*.attention.wkv_a.weight",
                   .wide = "layers.*.attention.wkv_b.weight",
                   .readers = {{"layers.*.attention.wkv_b", 3}, {"layers.*.attention.k_rope", 4}}};
  return rules;
}

// Latent attention pads values to the width of queries and keys.
Status Check(const ModelConfig& c) {
  const MlaConfig& mla = c.mla;
  if (mla.kv_rank < 1 || mla.nope_dim < 1 || mla.v_dim < 1)
    return Error(Diag::kModelSize,
                 "mla.kv_rank is {}, mla.nope_dim {} and mla.v_dim {}; all must be at least 1",
                 mla.kv_rank, mla.nope_dim, mla.v_dim);
  if (mla.v_dim > mla.nope_dim + mla.rope_dim)
    return Error(Diag::kModelSize, "mla.v_dim is {}, more than the {} of queries and keys",
                 mla.v_dim, mla.nope_dim + mla.rope_dim);
  if (c.window > 0 || c.attention_softcap > 0 || c.query_scalar > 0)
    return Error(Diag::kModelSize,
                 "window is {}, attention_softcap {} and query_scalar {}, but latent attention has "
                 "none of them; expected 0",
                 c.window, c.attention_softcap, c.query_scalar);
  return CheckDecoder(c);
}

void ClassFields(HfConfig& file, ModelConfig& c) {
  MoeConfig& moe = c.moe;
  file.Require(moe.score == RouterScore::kSigmoid, "scores by sigmoid only");
  file.Require(moe.groups <= 1 || moe.group_score == GroupScore::kTopTwo,
               "groups scored by their two best experts only");
  file.Require(moe.experts >= 2 * std::max<int64_t>(moe.groups, 1),
               "at least two experts in a group");
  file.Require(moe.shared_experts >= 1, "a shared expert");
  file.Require(c.mla.norm_eps == 1e-6, "a mla.norm_eps of 1e-6");
  file.Require(c.rope.scaling != RopeScaling::kLlama, "rotary scaling by yarn only");
  if (file.reading()) {
    c.n_kv_heads = c.n_heads;
    moe.score = RouterScore::kSigmoid;
    moe.bias = true;
    if (c.rope.scaling == RopeScaling::kLlama)
      file.Wrong(file.Find("rope_parameters") ? "rope_parameters" : "rope_scaling",
                 "is Llama's; DeepSeek models support yarn only");
  } else {
    file.Write("num_key_value_heads", c.n_heads);
    // One group of all experts is equivalent to no groups.
    moe.groups = std::max<int64_t>(moe.groups, 1);
    moe.limited_groups = std::max<int64_t>(moe.limited_groups, 1);
  }
  file.Int("q_lora_rank", c.mla.q_rank, 0);
  if (c.mla.q_rank == 0) file.Write("q_lora_rank", nullptr);
  file.Int("kv_lora_rank", c.mla.kv_rank);
  file.Int("qk_nope_head_dim", c.mla.nope_dim);
  file.Int("qk_rope_head_dim", c.mla.rope_dim);
  file.Int("v_head_dim", c.mla.v_dim);
  file.Fixed("rope_interleave", true);
  bool local = !file.Find("n_routed_experts") && file.Find("num_local_experts");
  file.Int(local ? "num_local_experts" : "n_routed_experts", moe.experts);
  file.Int("num_experts_per_tok", moe.top_k);
  file.Int("moe_intermediate_size", moe.ffn_dim);
  file.Int("n_shared_experts", moe.shared_experts);
  file.Int("first_k_dense_replace", moe.dense_layers);
  file.Bool("norm_topk_prob", moe.normalize, true);
  file.Number("routed_scaling_factor", moe.route_scale);
  file.Int("n_group", moe.groups);
  file.Int("topk_group", moe.limited_groups);
  file.Write("num_nextn_predict_layers", 0);
  file.Expect("scoring_func", "sigmoid");
  file.Expect("topk_method", "noaux_tc");
  file.Expect("moe_layer_freq", 1);
}

// The class has a bias in every layer with experts. A bias of zeros has no effect.
std::vector<StepInput> HfBuffers(const ModelConfig& c) {
  std::vector<StepInput> biases;
  for (int64_t layer = c.moe.dense_layers; layer < c.n_layers; ++layer)
    biases.push_back({ExpertBiasName(layer), InputRole::kBuffer, DType::kF32, {c.moe.experts}});
  return biases;
}

constexpr HfClass kHfClasses[] = {{.type = "deepseek_v3",
                                   .name = "DeepseekV3ForCausalLM",
                                   .has_experts = true,
                                   .fields = ClassFields}};
constexpr HfName kHfNames[] = {
    {"attention.wq_a.weight", "self_attn.q_a_proj.weight"},
    {"attention.wq_b.weight", "self_attn.q_b_proj.weight"},
    {"attention.q_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attention.wkv_a.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attention.wkv_b.weight", "self_attn.kv_b_proj.weight"},
    {"attention.kv_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"moe.expert_bias_E", "mlp.gate.e_score_correction_bias"},
};

// TorchTitan's training configurations. TorchTitan checkpoints selectively by default.
constexpr PublishedRun kPublished[] = {{"16B", 1, 8, 4, "selective"},
                                       {"671B", 1, 2, 4, "selective"}};

}  // namespace deepseek_v3

HEDDLE_DEFINE_FAMILY(deepseek_v3){
    .name = "deepseek_v3",
    .flavors = deepseek_v3::Flavors,
    .check = deepseek_v3::Check,
    .make = deepseek_v3::Make,
    .init = deepseek_v3::WeightInit,
    .rules = deepseek_v3::Rules,
    .attention = deepseek_v3::Attention,
    .hf = {.classes = deepseek_v3::kHfClasses,
           .names = deepseek_v3::kHfNames,
           .buffers = deepseek_v3::HfBuffers,
           .has_more_layers = true},
    .published = deepseek_v3::kPublished,
};

}  // namespace heddle::run
