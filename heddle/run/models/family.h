// Families of models.
//
// A family is one file: flavors, step, rules for presets, and its class of transformers.
// `HEDDLE_DEFINE_FAMILY(ident){...}` and one line in family_list.def add it. Families use the same
// names for their parts, each in its own namespace.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/compile/plan/presets/rules.h"
#include "heddle/run/models/config.h"
#include "heddle/run/models/layers.h"

#define HEDDLE_DEFINE_FAMILY(ident)    \
  extern const Family kFamily_##ident; \
  constinit const Family kFamily_##ident =

namespace heddle::run {

struct BatchConfig {
  // Sequences and their length, of the whole mesh.
  int64_t batch = 1;
  int64_t seq_len = 2048;
};

// Parameters in registration order, and a function from tokens to logits.
struct FamilyParts {
  std::vector<ParamSpec> params;
  std::vector<StepInput> buffers;
  std::function<at::Tensor(const ModelWeights&, const at::Tensor& tokens)> logits;
};

// Of initial weights: normal with this deviation; numbers further out than `cut` deviations are drawn again.
struct Spread {
  double deviation = 0.02;
  double cut = 6.0;
};

class HfConfig;

// A class of transformers that computes models of a family.
struct HfClass {
  // `model_type` in config.json, and the class.
  std::string_view type;
  std::string_view name;
  bool has_experts = false;
  // Reads or writes the fields that not all decoders have.
  void (*fields)(HfConfig& file, ModelConfig& config);
};

// A weight of a layer, without the layer's prefix.
struct HfName {
  std::string_view ours;
  // `*` is the number of an expert.
  std::string_view theirs;
  // The heads whose rows are reordered, for rotary embedding of halves instead of pairs.
  int64_t ModelConfig::*rotated_heads = nullptr;
};

// How a family is stored in Hugging Face folders.
struct HfMapping {
  // Empty if transformers has none.
  std::span<const HfClass> classes = {};
  // Besides those of all decoders (hf/names.cc).
  std::span<const HfName> names = {};
  // Buffers that folders contain besides the parameters; may be null.
  std::vector<StepInput> (*buffers)(const ModelConfig& config) = nullptr;
  // Folders may have layers after the last, which predict further tokens and are not loaded.
  bool has_more_layers = false;
};

// A published training configuration, which `heddle search` lists for comparison.
struct PublishedRun {
  std::string_view flavor;
  // Degrees of tensor and expert parallelism; all other ranks shard parameters.
  int64_t tensor;
  int64_t experts;
  // Per data-parallel rank and pass.
  int64_t sequences;
  // Activation checkpointing.
  std::string_view policy;
};

struct Family {
  std::string_view name;
  std::vector<ModelConfig> (*flavors)();
  // Sizes that do not fit together; may be null.
  Status (*check)(const ModelConfig& config) = nullptr;
  FamilyParts (*make)(const ModelConfig& config, const BatchConfig& batch);
  // Of a parameter, by its name and the layer it is in. Norms are ones and not asked for.
  Spread (*spread)(const ModelConfig& config, std::string_view name, int64_t layer);
  compile::ParallelRules (*rules)();
  // The attention of a block of a decoder, in its module; with the weights of some heads, for these. Null if there is none.
  at::Tensor (*attention)(const ModelWeights& weights, const ModelConfig& config,
                          const at::Tensor& x) = nullptr;
  HfMapping hf = {};
  std::span<const PublishedRun> published = {};
};

// In the order in which they are listed to users.
std::span<const Family* const> Families();

}  // namespace heddle::run
