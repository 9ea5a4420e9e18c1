// GPT-2: learned embeddings of positions, layer norms, biases everywhere, and a feed-forward
// network with GELU. Hugging Face stores queries, keys and values as one weight, and transposes
// weights.
#include "heddle/run/capture/scope.h"
#include "heddle/run/models/hf_config.h"
#include "heddle/run/models/llama.h"

namespace heddle::run {
namespace gpt2 {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads,
                   int64_t vocab = 50257) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, heads, 4 * dim, vocab);
  c.max_length = 1024;
  c.tied = true;
  return c;
}

// The debug model is not published.
std::vector<ModelConfig> Flavors() {
  return {
      Flavor("debugmodel", 256, 6, 16, 2048), Flavor("124M", 768, 12, 12),
      Flavor("355M", 1024, 24, 16),           Flavor("774M", 1280, 36, 20),
      Flavor("1.5B", 1600, 48, 25),
  };
}

// 0.02 for all weights, but less for weights that write to the residual stream.
InitDistribution WeightInit(const ModelConfig& c, std::string_view name, int64_t) {
  bool writes = name.ends_with(".wo.weight") || name.ends_with(".w2.weight");
  return writes ? DepthScaledInit(c.n_layers - 1) : InitDistribution();
}

at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x,
                     int64_t layer) {
  ScopeGuard scope("attention");
  return GroupedQueryAttention(weights, c, x, layer,
                               [](const at::Tensor& heads, std::string_view) { return heads; });
}

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  StepInput positions{std::string(kPositionIds), InputRole::kBuffer, DType::kI64, {batch.seq_len}};
  auto add_feed_forward = [](ParamList& params, const std::string& prefix, int64_t dim,
                             int64_t hidden, const std::string& unit) {
    params.Add(prefix + ".w1.weight", {hidden, dim}, unit);
    params.Add(prefix + ".w1.bias", {hidden}, unit);
    params.Add(prefix + ".w2.weight", {dim, hidden}, unit);
  };
  return DecoderParts(config, {positions},
                      {.add_attention = AddBiasedAttention,
                       .add_feed_forward = add_feed_forward,
                       .output_biases = true});
}

compile::ParallelRules Rules() {
  compile::ParallelRules rules = DecoderRules();
  for (const char* name : {"**.attention.wq.bias", "**.attention.wk.bias", "**.attention.wv.bias",
                           "**.feed_forward.w1.bias"})
    rules.weights.push_back({name, 0});
  return rules;
}

Status Check(const ModelConfig& c) {
  if (c.max_length < 1)
    return Error(Diag::kModelSize, "max_length is {}, expected at least 1", c.max_length);
  return llama::CheckDense(c);
}

// Rates of dropout are not read: Heddle trains without.
void ClassFields(HfConfig& file, ModelConfig& c) {
  file.Require(c.n_kv_heads == c.n_heads, "as many key heads as query heads");
  file.Require(c.n_heads * c.head_size() == c.dim, "heads of dim elements in all");
  file.Require(c.window == 0, "no window");
  file.Int("vocab_size", c.vocab_size, 50257);
  file.Int("n_embd", c.dim, 768);
  file.Int("n_inner", c.ffn_dim, 4 * c.dim);
  file.Int("n_layer", c.n_layers, 12);
  file.Int("n_head", c.n_heads, 12);
  file.Int("n_positions", c.max_length, 1024);
  file.Number("layer_norm_epsilon", c.norm_eps, 1e-5);
  file.Bool("tie_word_embeddings", c.tied, true);
  file.Fixed("activation_function", "gelu_new");
  file.Fixed("scale_attn_weights", true);
  file.Fixed("scale_attn_by_inverse_layer_idx", false);
  file.Fixed("reorder_and_upcast_attn", false);
  file.Expect("add_cross_attention", false);
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) file.Write(key, 0.0);
  file.Plain(c, {});
  if (!file.reading()) return;
  c.n_kv_heads = c.n_heads;
  if (c.n_heads > 0 && c.dim % c.n_heads == 0) c.head_dim = c.dim / c.n_heads;
}

constexpr HfClass kHfClasses[] = {{.type = "gpt2",
                                   .name = "GPT2LMHeadModel",
                                   .common = {.decoder = false},
                                   .fields = ClassFields}};

constexpr std::string_view kFused = "attn.c_attn.weight";
constexpr std::string_view kFusedBias = "attn.c_attn.bias";
HfRows Queries(const ModelConfig& c) { return {0, c.dim, 3 * c.dim}; }
HfRows Keys(const ModelConfig& c) { return {c.dim, c.dim, 3 * c.dim}; }
HfRows Values(const ModelConfig& c) { return {2 * c.dim, c.dim, 3 * c.dim}; }

constexpr HfName kHfNames[] = {
    {"tok_embeddings.weight", "transformer.wte.weight"},
    {"position_embeddings.weight", "transformer.wpe.weight"},
    {"norm.weight", "transformer.ln_f.weight"},
    {"norm.bias", "transformer.ln_f.bias"},
    {.ours = "attention.wq.weight", .theirs = kFused, .rows = Queries, .transposed = true},
    {.ours = "attention.wk.weight", .theirs = kFused, .rows = Keys, .transposed = true},
    {.ours = "attention.wv.weight", .theirs = kFused, .rows = Values, .transposed = true},
    {.ours = "attention.wq.bias", .theirs = kFusedBias, .rows = Queries},
    {.ours = "attention.wk.bias", .theirs = kFusedBias, .rows = Keys},
    {.ours = "attention.wv.bias", .theirs = kFusedBias, .rows = Values},
    {.ours = "attention.wo.weight", .theirs = "attn.c_proj.weight", .transposed = true},
    {"attention_output.bias", "attn.c_proj.bias"},
    {.ours = "feed_forward.w1.weight", .theirs = "mlp.c_fc.weight", .transposed = true},
    {"feed_forward.w1.bias", "mlp.c_fc.bias"},
    {.ours = "feed_forward.w2.weight", .theirs = "mlp.c_proj.weight", .transposed = true},
    {"ffn_output.bias", "mlp.c_proj.bias"},
    {"attention_norm.weight", "ln_1.weight"},
    {"attention_norm.bias", "ln_1.bias"},
    {"ffn_norm.weight", "ln_2.weight"},
    {"ffn_norm.bias", "ln_2.bias"},
};
// Masks.
constexpr std::string_view kUnused[] = {".attn.bias", ".attn.masked_bias"};

}  // namespace gpt2

HEDDLE_DEFINE_FAMILY(gpt2){
    .name = "gpt2",
    .flavors = gpt2::Flavors,
    .check = gpt2::Check,
    .make = gpt2::Make,
    .init = gpt2::WeightInit,
    .rules = gpt2::Rules,
    .attention = gpt2::Attention,
    .norm = NormKind::kLayer,
    .feed_forward = PlainGelu,
    .learned_positions = true,
    .hf = {.classes = gpt2::kHfClasses,
           .names = gpt2::kHfNames,
           .model = "transformer.",
           .layers = "transformer.h.",
           .unused = gpt2::kUnused},
};

}  // namespace heddle::run
