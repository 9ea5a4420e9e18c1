// Mistral: Llama with other constants, and in its first version a sliding window.
#include "heddle/run/models/hf_config.h"
#include "heddle/run/models/llama.h"

namespace heddle::run {
namespace mistral {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t ffn, int64_t vocab,
                   double theta, int64_t length) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, 32, 8, ffn, vocab);
  c.head_dim = 128;
  c.max_length = length;
  c.rope.theta = theta;
  return c;
}

ModelConfig FirstVersion() {
  ModelConfig c = Flavor("7B-v0.1", 4096, 32, 14336, 32000, 1e4, 32768);
  c.window = 4096;
  return c;
}

// Not a published model.
ModelConfig DebugModel() {
  ModelConfig c = Flavor("debugmodel", 256, 6, 768, 2048, 1e6, 32768);
  c.n_heads = 16;
  c.n_kv_heads = 4;
  c.head_dim = 32;
  return c;
}

// 7B is version 0.3.
std::vector<ModelConfig> Flavors() {
  return {
      DebugModel(),
      FirstVersion(),
      Flavor("7B", 4096, 32, 14336, 32768, 1e6, 32768),
      Flavor("Nemo-12B", 5120, 40, 14336, 131072, 1e6, 1024000),
      Flavor("Small-24B", 5120, 40, 32768, 131072, 1e8, 32768),
  };
}

void ClassFields(HfConfig& file, ModelConfig& c) {
  file.Int("head_dim", c.head_dim, 0);
  file.Window("sliding_window", c.window, 4096);
}

constexpr HfClass kHfClasses[] = {{.type = "mistral",
                                   .name = "MistralForCausalLM",
                                   .common = {.kv_heads = 8},
                                   .fields = ClassFields}};

}  // namespace mistral

HEDDLE_DEFINE_FAMILY(mistral)
llama::MakeFamily("mistral", mistral::Flavors,
                  {.classes = mistral::kHfClasses, .names = llama::kHfNames});

}  // namespace heddle::run
