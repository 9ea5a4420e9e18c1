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

// Values of fields that config.json may leave out.
struct HfDefaults {
  double norm_eps = 1e-6;
  double rope_theta = 1e4;
  // 0: as many as query heads.
  int64_t kv_heads = 0;
};

// A class of transformers that computes models of a family.
struct HfClass {
  // `model_type` in config.json, and the name of the class.
  std::string_view type;
  std::string_view name;
  bool has_experts = false;
  HfDefaults defaults = {};
  // Reads or writes the fields that not all decoders have.
  void (*fields)(HfConfig& file, ModelConfig& config);
};

// A part of the rows of a tensor: `count` rows from `begin`, of `all`.
struct HfRows {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t all = 0;
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
};

// Describes how Hugging Face folders store a family.
struct HfMapping {
  // Empty if transformers has no class for it.
  std::span<const HfClass> classes = {};
  // Names in addition to those of all decoders (hf/names.cc).
  std::span<const HfName> names = {};
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
                          const at::Tensor& x) = nullptr;
  // Attention of some of the heads needs no other heads. False if a norm spans all heads.
  bool heads_apart = true;
  // The norms of a block follow attention and feed-forward, instead of preceding them.
  bool norms_after = false;
  HfMapping hf = {};
  std::span<const PublishedRun> published = {};
};

// In the order in which users see them.
std::span<const Family* const> Families();

}  // namespace heddle::run
