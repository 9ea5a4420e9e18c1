// Families of models.
//
// A family is a file of its own: its flavors, its step, what presets may split. `HEDDLE_DEFINE_FAMILY(ident){...}` and one line in
// family_list.def add it; everything else follows. Families name their parts alike, each in a namespace of its own.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/models/config.h"
#include "heddle/models/layers.h"
#include "heddle/plan/presets/rules.h"

#define HEDDLE_DEFINE_FAMILY(ident)    \
  extern const Family kFamily_##ident; \
  constinit const Family kFamily_##ident =

namespace heddle {

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

struct Family {
  std::string_view name;
  std::vector<ModelConfig> (*flavors)();
  // Sizes that do not fit together; may be null.
  Status (*check)(const ModelConfig& config) = nullptr;
  FamilyParts (*make)(const ModelConfig& config, const BatchConfig& batch);
  // Of a parameter, by its name and the layer it is in. Norms are ones and not asked for.
  Spread (*spread)(const ModelConfig& config, std::string_view name, int64_t layer);
  ParallelRules (*rules)();
  // The attention of a block of a decoder, in its module; with the weights of some heads, for these. Null if there is none.
  at::Tensor (*attention)(const ModelWeights& weights, const ModelConfig& config,
                          const at::Tensor& x) = nullptr;
};

// In the order in which they are listed to users.
std::span<const Family* const> Families();

}  // namespace heddle
