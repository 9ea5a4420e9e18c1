// Generates text with a model, token by token.
//
// There is no cache, so every token runs the whole model. This shows that training worked; it is
// not for serving.
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
  uint64_t seed = 0;
  // The token that ends the text.
  std::optional<int64_t> end = {};
  // Called after each token with all tokens after the prompt. May be empty.
  std::function<void(std::span<const int64_t>)> on_token = {};
};

// Returns the tokens after the prompt, which must not be empty. The model has batch size one.
// Tokens further back than its sequence length are dropped. The same options give the same tokens
// on every platform, as far as its kernels do.
Result<std::vector<int64_t>> Generate(const Model& model, const ParamSource& params,
                                      std::vector<int64_t> prompt, const GenerateOptions& options);

}  // namespace heddle::run
