// Families of models.
//
// A family is a file of its own: its flavors, its step, what presets may split. `HEDDLE_DEFINE_FAMILY(ident){...}` and one line in
// family_list.def add it; everything else follows.
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
  std::function<at::Tensor(const Weights&, const at::Tensor& tokens)> logits;
};

struct Family {
  std::string_view name;
  std::vector<ModelConfig> (*flavors)();
  // Sizes that do not fit together; may be null.
  Status (*check)(const ModelConfig& config) = nullptr;
  FamilyParts (*make)(const ModelConfig& config, const BatchConfig& batch);
  ParallelRules (*rules)();
};

// In the order in which they are listed to users.
std::span<const Family* const> Families();

}  // namespace heddle
