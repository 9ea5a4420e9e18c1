// Llama 2 and 3: grouped-query attention, rotary embedding on adjacent pairs, SwiGLU.
#include "heddle/run/models/llama.h"

#include "heddle/run/capture/scope.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/hf_config.h"

namespace heddle::run {
namespace llama {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab = 128256) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.rope.scaling = RopeScaling::kLlama;
  c.rope.factor = 8.0;
  return c;
}

// Llama 3.2, which was published with another RoPE factor than the larger models.
ModelConfig Small(std::string flavor, int64_t dim, int64_t layers, int64_t heads) {
  ModelConfig c = Flavor(std::move(flavor), dim, layers, heads, 8, 8192);
  c.tied = true;
  c.rope.factor = 32.0;
  return c;
}

// Not a published model. Its RoPE is not scaled, like the reference whose bits it must match;
// TorchTitan scales by 8.
ModelConfig DebugModel() {
  ModelConfig c = Flavor("debugmodel", 256, 6, 16, 16, 768, 2048);
  c.rope.scaling = RopeScaling::kNone;
  return c;
}

std::vector<ModelConfig> Llama3Flavors() {
  return {
      DebugModel(),
      Small("1B", 2048, 16, 32),
      Small("3B", 3072, 28, 24),
      Flavor("8B", 4096, 32, 32, 8, 14336),
      Flavor("70B", 8192, 80, 64, 8, 28672),
      Flavor("405B", 16384, 126, 128, 8, 53248),
  };
}

ModelConfig Llama2(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab = 32000) {
  ModelConfig c = Flavor(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.max_length = 4096;
  c.rope = {.theta = 1e4};
  return c;
}

// The debug model is not published.
std::vector<ModelConfig> Llama2Flavors() {
  return {
      Llama2("debugmodel", 256, 6, 16, 16, 768, 2048),
      Llama2("7B", 4096, 32, 32, 32, 11008),
      Llama2("13B", 5120, 40, 40, 40, 13824),
      Llama2("70B", 8192, 80, 64, 8, 28672),
  };
}

at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x,
                     int64_t layer) {
  ScopeGuard scope("attention");
  at::Tensor rotations = weights.Rotations("rope");
  return GroupedQueryAttention(
      weights, c, x, layer,
      [&](const at::Tensor& heads, std::string_view) { return RotatePairs(heads, rotations); });
}

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  StepInput rope{"rope", InputRole::kBuffer, DType::kC64, {batch.seq_len, config.head_size() / 2}};
  return DecoderParts(config, {rope}, {.add_attention = AddAttention});
}

Status CheckDense(const ModelConfig& c) {
  if (c.moe.experts > 0)
    return Error(Diag::kModelSize,
                 "moe.experts is {}, but {} does not support experts; use mixtral, qwen3 or "
                 "deepseek_v3",
                 c.moe.experts, c.family->name);
  return CheckDecoder(c);
}

void ClassFields(HfConfig& file, ModelConfig& c) {
  file.Int("head_dim", c.head_dim, 0);
  file.Fixed("mlp_bias", false);
}

constexpr HfClass kHfClasses[] = {
    {.type = "llama", .name = "LlamaForCausalLM", .fields = ClassFields}};

// From TorchTitan's report on H100 of December 2024: FSDP, with tensor parallelism within nodes for
// the large models. The report's 405B also uses eight pipeline stages and fp8, which are left out.
constexpr PublishedRun kPublished[] = {
    {"8B", 1, 1, 1, "selective"}, {"70B", 8, 1, 8, "full"}, {"405B", 8, 1, 2, "full"}};

}  // namespace llama

HEDDLE_DEFINE_FAMILY(llama3)
llama::MakeFamily("llama3", llama::Llama3Flavors,
                  {.classes = llama::kHfClasses, .names = llama::kHfNames}, llama::kPublished);

HEDDLE_DEFINE_FAMILY(llama2)
llama::MakeFamily("llama2", llama::Llama2Flavors,
                  {.classes = llama::kHfClasses, .names = llama::kHfNames});

}  // namespace heddle::run
