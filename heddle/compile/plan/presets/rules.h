// What a family of models tells presets about its weights and layers. The tables stand with the models.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/attrs.h"

namespace heddle::compile {

// The dimension of a weight that tensor parallelism splits.
struct WeightRule {
  std::string pattern;
  size_t dim;
};

// What flows between layers: activations of the residual stream, which sequence parallelism splits by position; activations that
// a layer needs whole; logits, which a split loss has by vocabulary.
enum class Flow : uint8_t { kNone, kResidual, kWhole, kLogits };

struct LayerRule {
  std::string pattern;
  Flow in = Flow::kNone;
  Flow out = Flow::kNone;
  // Every rank may work on its own tokens alone, although the ops of the layer mix them: it undoes what it mixes.
  bool own_tokens = false;
  // The purpose of what is moved there.
  Why why = Why::kTensor;
};

struct ParallelRules {
  std::vector<WeightRule> weights;
  // Stacks of the weights of experts, which expert parallelism splits by expert, dimension 0.
  std::vector<std::string> experts;
  std::vector<LayerRule> layers;
};

}  // namespace heddle::compile
