// Facts about the weights and layers of a model family, for presets. The tables are in the
// families' files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/core/ir/attrs.h"

namespace heddle::compile {

// The dimension of a weight that tensor parallelism splits.
struct WeightRule {
  std::string pattern;
  size_t dim;
};

// Kinds of tensors between layers: activations of the residual stream, which sequence parallelism
// splits by position; activations that a layer needs whole; logits, which a split loss splits by
// vocabulary.
enum class Flow : uint8_t { kNone, kResidual, kWhole, kLogits };

struct LayerRule {
  std::string pattern;
  Flow in = Flow::kNone;
  Flow out = Flow::kNone;
  // Every rank may work on its own tokens alone. Ops of the layer mix tokens, but later ops undo
  // that.
  bool own_tokens = false;
  // The layer mixes positions, in causal attention.
  bool mixes_positions = false;
  // The purpose of redistributions there.
  Why why = Why::kTensor;
};

// Keys and values that a layer expands from latents. If these are narrower, context-parallel ranks
// gather the latents, and each expands the keys and values of all positions.
struct LatentRule {
  // The weight whose rows are the latents' elements, and the one whose rows are those of keys and
  // values.
  std::string narrow;
  std::string wide;
  // The modules that read latents, with the rank of their inputs, [batch, positions, ...].
  struct Reader {
    std::string pattern;
    size_t rank;
  };
  std::vector<Reader> readers;
};

struct ParallelRules {
  std::vector<WeightRule> weights;
  // Stacks of experts' weights, which expert parallelism splits along dimension 0.
  std::vector<std::string> experts;
  std::vector<LayerRule> layers;
  // Buffers whose first dimension is the position in the sequence.
  std::vector<std::string> positions = {};
  std::optional<LatentRule> latents = {};
};

}  // namespace heddle::compile
