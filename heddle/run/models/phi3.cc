// Phi 3 and Phi 4: Llama with other constants. Hugging Face stores queries, keys and values as one
// weight, and both inputs of SwiGLU as another.
#include "heddle/run/models/hf_config.h"
#include "heddle/run/models/llama.h"

namespace heddle::run {
namespace phi3 {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab, int64_t length, int64_t window, double theta) {
  ModelConfig c = DecoderConfig(std::move(flavor), dim, layers, heads, kv_heads, ffn, vocab);
  c.max_length = length;
  c.window = window;
  c.rope.theta = theta;
  return c;
}

// The debug model is not published. `mini` and `medium` are the models for 4096 positions.
std::vector<ModelConfig> Flavors() {
  return {
      Flavor("debugmodel", 256, 6, 16, 4, 768, 2048, 4096, 0, 1e4),
      Flavor("mini", 3072, 32, 32, 32, 8192, 32064, 4096, 2047, 1e4),
      Flavor("medium", 5120, 40, 40, 10, 17920, 32064, 4096, 2047, 1e4),
      Flavor("phi4", 5120, 40, 40, 10, 17920, 100352, 16384, 0, 250000.0),
  };
}

void ClassFields(HfConfig& file, ModelConfig& c) {
  file.Int("head_dim", c.head_dim, 0);
  file.Window("sliding_window", c.window, 0);
  file.Expect("partial_rotary_factor", 1.0);
  for (const char* key : {"resid_pdrop", "embd_pdrop"}) file.Expect(key, 0.0);
}

constexpr HfClass kHfClasses[] = {{.type = "phi3",
                                   .name = "Phi3ForCausalLM",
                                   .common = {.norm_eps = 1e-5},
                                   .fields = ClassFields}};

HfRows Queries(const ModelConfig& c) {
  return {0, c.n_heads * c.head_size(), (c.n_heads + 2 * c.n_kv_heads) * c.head_size()};
}
HfRows Keys(const ModelConfig& c) {
  return {Queries(c).count, c.n_kv_heads * c.head_size(), Queries(c).all};
}
HfRows Values(const ModelConfig& c) {
  return {Queries(c).count + Keys(c).count, Keys(c).count, Queries(c).all};
}
HfRows Gate(const ModelConfig& c) { return {0, c.ffn_dim, 2 * c.ffn_dim}; }
HfRows Up(const ModelConfig& c) { return {c.ffn_dim, c.ffn_dim, 2 * c.ffn_dim}; }

constexpr HfName kHfNames[] = {
    {"attention.wq.weight", "self_attn.qkv_proj.weight", &ModelConfig::n_heads, Queries},
    {"attention.wk.weight", "self_attn.qkv_proj.weight", &ModelConfig::n_kv_heads, Keys},
    {"attention.wv.weight", "self_attn.qkv_proj.weight", nullptr, Values},
    {"feed_forward.w1.weight", "mlp.gate_up_proj.weight", nullptr, Gate},
    {"feed_forward.w3.weight", "mlp.gate_up_proj.weight", nullptr, Up},
};

}  // namespace phi3

HEDDLE_DEFINE_FAMILY(phi3)
llama::MakeFamily("phi3", phi3::Flavors, {.classes = phi3::kHfClasses, .names = phi3::kHfNames});

}  // namespace heddle::run
