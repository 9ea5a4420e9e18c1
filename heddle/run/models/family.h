// Families of models.
//
// A family is one file: flavors, step, rules for presets, and its class of transformers.
// `HEDDLE_DEFINE_FAMILY(ident){...}` and a line in family_list.def add it. Families use the same
// names for their parts, each in its own namespace.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/compile/plan/presets/rules.h"
#include "heddle/run/layers/layers.h"
#include "heddle/run/models/config.h"

#define HEDDLE_DEFINE_FAMILY(ident)    \
  extern const Family kFamily_##ident; \
  constinit const Family kFamily_##ident =

namespace heddle::run {

struct BatchConfig {
  // Number of sequences over the whole mesh, and their length.
  int64_t batch = 1;
  int64_t seq_len = 2048;
  // Attention does not cross the boundaries of documents, and their positions start over. The step
  // has the input kDocumentPositions.
  bool documents = false;
};

// The parameters in registration order, the buffers, and a function from tokens to logits.
struct FamilyParts {
  std::vector<ParamSpec> params;
  std::vector<StepInput> buffers;
  std::function<at::Tensor(const ModelWeights&, const at::Tensor& tokens)> logits;
};

// Initial weights: a normal distribution with this deviation, truncated at `cut` deviations.
struct InitDistribution {
  double deviation = 0.02;
  double cut = 6.0;
};

class HfConfig;

// Fields of config.json that not all classes have, and values of fields that it may leave out.
struct HfFields {
  double norm_eps = 1e-6;
  double rope_theta = 1e4;
  // 0: as many as query heads.
  int64_t kv_heads = 0;
  // The field with the name of the activation function, and the name.
  const char* activation_key = "hidden_act";
  std::string_view activation = "silu";
  bool tied = false;
  bool softcaps = false;
  bool query_scalar = false;
  // Projections of attention have biases.
  bool attention_bias = false;
  // Layers have types: with a window, or without. The default of ModelConfig::global_every; 0: the
  // class has no types of layers.
  int64_t global_every = 0;
  int64_t window = 4096;
  // The class has a rotary base for layers with a window; its default. 0: it has not.
  double local_theta = 0;
  // False if the family reads and writes all fields: HfConfig::Decoder does nothing.
  bool decoder = true;
};

// A class of transformers that computes models of a family.
struct HfClass {
  // `model_type` in config.json, and the name of the class.
  std::string_view type;
  std::string_view name;
  bool has_experts = false;
  HfFields common = {};
  // Reads or writes further fields.
  void (*fields)(HfConfig& file, ModelConfig& config);
};

// A part of the rows of a tensor: `count` rows from `begin` on, each `step` after the last, of
// `all`.
struct HfRows {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t all = 0;
  int64_t step = 1;
};

// A weight of a layer, without the layer's prefix.
struct HfName {
  std::string_view ours;
  // `*` is the number of an expert.
  std::string_view theirs;
  // Number of heads whose rows are reordered, because Hugging Face rotates halves of a head instead
  // of pairs.
  int64_t ModelConfig::*rotated_heads = nullptr;
  // The rows of their tensor that are this weight; null: all.
  HfRows (*rows)(const ModelConfig& config) = nullptr;
  // The last two dimensions of their tensor are exchanged.
  bool transposed = false;
  // Their tensor lacks the last dimension, which is 1.
  bool columns = false;
};

// Describes how Hugging Face folders store a family.
struct HfMapping {
  // Empty if transformers has no class for it.
  std::span<const HfClass> classes = {};
  // Names in addition to those of all decoders (hf/names.cc), of weights in layers and outside.
  std::span<const HfName> names = {};
  // The prefix of all their names, which some folders leave out, and that of names in layers.
  std::string_view model = {};
  std::string_view layers = "model.layers.";
  // Suffixes of tensors that folders may contain and that are not loaded.
  std::span<const std::string_view> unused = {};
  // Buffers that folders contain in addition to the parameters; may be null.
  std::vector<StepInput> (*buffers)(const ModelConfig& config) = nullptr;
  // Folders may contain layers after the last. They predict further tokens and are not loaded.
  bool has_more_layers = false;
};

// A published training configuration, which `heddle search` lists for comparison.
struct PublishedRun {
  std::string_view flavor;
  // Degrees of tensor and expert parallelism. All other ranks shard parameters.
  int64_t tensor;
  int64_t experts;
  // Per data-parallel rank and micro-batch.
  int64_t sequences;
  // Activation checkpointing policy.
  std::string_view policy;
};

enum class NormKind : uint8_t { kRms, kOffsetRms, kLayer };
// Norms precede attention and feed-forward, follow them, or do both.
enum class NormPlace : uint8_t { kBefore, kAfter, kAround };

struct Family {
  std::string_view name;
  std::vector<ModelConfig> (*flavors)();
  // Fails for sizes that do not fit together; may be null.
  Status (*check)(const ModelConfig& config) = nullptr;
  FamilyParts (*make)(const ModelConfig& config, const BatchConfig& batch);
  // Returns the initial distribution of a parameter, by its name and layer. Not called for norms,
  // which are ones, and biases, which are zeros.
  InitDistribution (*init)(const ModelConfig& config, std::string_view name, int64_t layer);
  compile::ParallelRules (*rules)();
  // Computes the attention of a decoder block, in its module. If `heads_apart`, works for the
  // weights of a subset of heads, too. Null if the family has no attention.
  at::Tensor (*attention)(const ModelWeights& weights, const ModelConfig& config,
                          const at::Tensor& x, int64_t layer) = nullptr;
  // Attention of some of the heads needs no other heads. False if a norm spans all heads.
  bool heads_apart = true;
  NormKind norm = NormKind::kRms;
  NormPlace norms = NormPlace::kBefore;
  at::Tensor (*feed_forward)(const ModelWeights& weights, std::string_view name,
                             const at::Tensor& x) = FeedForward;
  // Embeddings are multiplied by the square root of `dim`, in the compute type.
  bool scaled_embedding = false;
  // Positions have learned embeddings, for sequences of at most `max_length`.
  bool learned_positions = false;
  // Heads have sinks (AttentionOptions), the weight `sinks` of attention.
  bool sinks = false;
  // Combines both products of an expert; null: silu(gate) * up.
  at::Tensor (*expert_gate)(const at::Tensor& gate, const at::Tensor& up) = nullptr;
  // Routers and experts have biases.
  bool expert_biases = false;
  // Layers with a window may have other rotations (rope_local_theta).
  bool local_rope = false;
  // Weights of attention and feed-forward may have adapters (LoraConfig).
  bool adapters = false;
  HfMapping hf = {};
  std::span<const PublishedRun> published = {};
};

// In the order in which users see them.
std::span<const Family* const> Families();

}  // namespace heddle::run
