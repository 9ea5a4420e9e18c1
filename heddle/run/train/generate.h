// Text from a model: token after token, each from all before it.
//
// There is no cache: every token runs the whole model. It shows that training worked; it is not for serving.
#pragma once

#include <vector>

#include "heddle/run/train/session.h"

namespace heddle::run {

struct GenerateOptions {
  int64_t tokens = 64;
  // 0: always the likeliest.
  double temperature = 0;
  // Only so many of the likeliest are drawn from; 0: all.
  int64_t top_k = 0;
  uint64_t seed = 0;
  // Ends the text.
  std::optional<int64_t> end = {};
};

// The tokens behind the prompt, which must not be empty. The model is for one sequence; what came longer ago than that is forgotten.
// The same options give the same tokens on every platform, as far as its kernels do.
Result<std::vector<int64_t>> Generate(const Model& model, const ParamSource& params,
                                      std::vector<int64_t> prompt, const GenerateOptions& options);

}  // namespace heddle::run
