// Gemma 2 and 3, for text: norms before and after attention and feed-forward, whose weights are
// added to 1; embeddings scaled by sqrt(dim); GELU instead of SiLU; layers with and without a
// window. Gemma 2 caps scores and logits. Gemma 3 has norms of heads, and other rotations in layers
// with a window.
#include "heddle/run/capture/scope.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/hf_config.h"
#include "heddle/run/models/llama.h"

namespace heddle::run {
namespace gemma {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab, int64_t head_dim) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.head_dim = head_dim;
  c.tied = true;
  c.norm_eps = 1e-6;
  return c;
}

// `query_scalar` is 0 if it is the head size.
ModelConfig Gemma2(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t head_dim = 256, int64_t query_scalar = 0,
                   int64_t vocab = 256000) {
  ModelConfig c = Flavor(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab, head_dim);
  c.max_length = 8192;
  c.window = 4096;
  c.global_every = 2;
  c.query_scalar = query_scalar;
  c.attention_softcap = 50;
  c.logit_softcap = 30;
  c.rope.theta = 1e4;
  return c;
}

// The debug models are not published.
std::vector<ModelConfig> Gemma2Flavors() {
  ModelConfig debug = Gemma2("debugmodel", 256, 6, 16, 4, 768, 32, 24, 2048);
  debug.window = 8;
  return {
      debug,
      Gemma2("2B", 2304, 26, 8, 4, 9216),
      Gemma2("9B", 3584, 42, 16, 8, 14336),
      Gemma2("27B", 4608, 46, 32, 16, 36864, 128, 144),
  };
}

ModelConfig Gemma3(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t window, int64_t vocab = 262144, int64_t head_dim = 256) {
  ModelConfig c = Flavor(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab, head_dim);
  c.max_length = 32768;
  c.window = window;
  c.global_every = 6;
  c.rope.theta = 1e6;
  c.rope.local_theta = 1e4;
  return c;
}

// The text part of a model that sees, for longer contexts.
ModelConfig Long(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                 int64_t ffn, int64_t head_dim = 256, int64_t query_scalar = 0) {
  ModelConfig c =
      Gemma3(std::move(flavor), dim, layers, heads, kv_heads, ffn, 1024, 262208, head_dim);
  c.max_length = 131072;
  c.query_scalar = query_scalar;
  c.rope.scaling = RopeScaling::kLinear;
  c.rope.factor = 8;
  return c;
}

std::vector<ModelConfig> Gemma3Flavors() {
  ModelConfig debug = Gemma3("debugmodel", 256, 6, 16, 4, 768, 8, 2048, 32);
  debug.global_every = 2;
  return {
      debug,
      Gemma3("270M", 640, 18, 4, 1, 2048, 512),
      Gemma3("1B", 1152, 26, 4, 1, 6912, 512),
      Long("4B", 2560, 34, 8, 4, 10240),
      Long("12B", 3840, 48, 16, 8, 15360),
      Long("27B", 5376, 62, 32, 16, 21504, 128, 168),
  };
}

template <bool normed>
at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x,
                     int64_t layer) {
  ScopeGuard scope("attention");
  auto [cosine_table, sine_table] = HalfRotationNames(c, layer);
  at::Tensor cosines = weights.Rotations(cosine_table);
  at::Tensor sines = weights.Rotations(sine_table);
  auto rotate = [&](const at::Tensor& heads, std::string_view norm) {
    return RotateHalves(normed ? Norm(weights, c, norm, heads) : heads, cosines, sines);
  };
  return GroupedQueryAttention(weights, c, x, layer, rotate);
}

template <bool normed>
FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  auto add_attention = [](ParamList& params, const ModelConfig& c, const std::string& unit) {
    AddAttention(params, c, unit);
    if (!normed) return;
    params.Add(unit + ".attention.q_norm.weight", {c.head_size()}, unit);
    params.Add(unit + ".attention.k_norm.weight", {c.head_size()}, unit);
  };
  return DecoderParts(config, HalfRotations(config, batch), {.add_attention = add_attention});
}

compile::ParallelRules Rules() {
  compile::ParallelRules rules = DecoderRules();
  for (const char* norm : {"layers.*.attention_post_norm", "layers.*.ffn_post_norm"})
    rules.layers.push_back(
        {.pattern = norm, .in = compile::Flow::kResidual, .out = compile::Flow::kResidual});
  return rules;
}

void SharedFields(HfConfig& file, ModelConfig& c) {
  file.Int("head_dim", c.head_dim, 256);
  int64_t scalar = c.query_scalar > 0 ? c.query_scalar : c.head_size();
  file.Int("query_pre_attn_scalar", scalar, 256);
  if (file.reading()) c.query_scalar = scalar == c.head_size() ? 0 : scalar;
  file.Expect("use_bidirectional_attention", false);
}

void Gemma3Fields(HfConfig& file, ModelConfig& c) {
  SharedFields(file, c);
  file.Require(c.rope.local_theta > 0, "a rope_local_theta");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (file.Find(key)) file.Wrong(key, "is given; Heddle's Gemma 3 has no softcaps");
  }
}

constexpr HfClass kHfClasses2[] = {{.type = "gemma2",
                                    .name = "Gemma2ForCausalLM",
                                    .common = {.kv_heads = 4,
                                               .activation_key = "hidden_activation",
                                               .activation = "gelu_pytorch_tanh",
                                               .tied = true,
                                               .softcaps = true,
                                               .query_scalar = true,
                                               .global_every = 2},
                                    .fields = SharedFields}};
constexpr HfClass kHfClasses3[] = {{.type = "gemma3_text",
                                    .name = "Gemma3ForCausalLM",
                                    .common = {.rope_theta = 1e6,
                                               .kv_heads = 4,
                                               .activation_key = "hidden_activation",
                                               .activation = "gelu_pytorch_tanh",
                                               .tied = true,
                                               .query_scalar = true,
                                               .global_every = 6,
                                               .local_theta = 1e4},
                                    .fields = Gemma3Fields}};
constexpr HfName kHfNames[] = {
    {"attention_post_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"ffn_post_norm.weight", "post_feedforward_layernorm.weight"},
    {"attention.q_norm.weight", "self_attn.q_norm.weight"},
    {"attention.k_norm.weight", "self_attn.k_norm.weight"},
};

constexpr Family MakeFamily(std::string_view name, std::vector<ModelConfig> (*flavors)(),
                            bool normed, std::span<const HfClass> classes) {
  return {.name = name,
          .flavors = flavors,
          .check = llama::CheckDense,
          .make = normed ? Make<true> : Make<false>,
          .init = PlainInit,
          .rules = Rules,
          .attention = normed ? Attention<true> : Attention<false>,
          .norm = NormKind::kOffsetRms,
          .norms = NormPlace::kAround,
          .feed_forward = GatedGelu,
          .scaled_embedding = true,
          .local_rope = normed,
          .hf = {.classes = classes, .names = kHfNames}};
}

}  // namespace gemma

HEDDLE_DEFINE_FAMILY(gemma2)
gemma::MakeFamily("gemma2", gemma::Gemma2Flavors, false, gemma::kHfClasses2);

HEDDLE_DEFINE_FAMILY(gemma3)
gemma::MakeFamily("gemma3", gemma::Gemma3Flavors, true, gemma::kHfClasses3);

}  // namespace heddle::run
