// Generates text with a model, token by token.
//
// A cache holds the keys and values of earlier positions, so a token costs one position. The first
// forward takes the whole prompt. Without room in the model's sequence length, every token runs all
// of its last positions.
#pragma once

#include <functional>
#include <vector>

#include "heddle/run/train/session.h"

namespace heddle::run {

struct GenerateOptions {
  int64_t tokens = 64;
  // 0: always the likeliest token.
  double temperature = 0;
  // Draws from the k likeliest tokens only; 0: from all.
  int64_t top_k = 0;
  // Draws from the fewest of the k likeliest tokens whose probabilities sum to at least this.
  double top_p = 1;
  uint64_t seed = 0;
  // The token that ends the text.
  std::optional<int64_t> end = {};
  // Called after each token with all tokens after the prompt; false ends the text. May be empty.
  std::function<bool(std::span<const int64_t>)> on_token = {};
};

// Draws token number `number` by the logits of its position.
int64_t DrawToken(const at::Tensor& logits, const GenerateOptions& options, uint64_t number);

// Returns the tokens after the prompt, which must not be empty. The model has batch size one.
// Tokens further back than its sequence length are dropped. The same options give the same tokens
// on every platform, as far as its kernels do.
Result<std::vector<int64_t>> Generate(const Model& model, const ParamSource& params,
                                      std::vector<int64_t> prompt, const GenerateOptions& options);

}  // namespace heddle::run
