// Reads and writes config.json of a Hugging Face folder.
//
// Supports the classes that families name (models/family.h). Fields that would make transformers
// compute something else than Heddle are errors, in both directions.
#pragma once

#include <string>
#include <string_view>

#include "heddle/core/base/result.h"
#include "heddle/run/models/config.h"

namespace heddle::run {

// Returns the model that the text of a config.json describes. Its flavor is `hf`.
Result<ModelConfig> ParseHfConfig(std::string_view text);
// Returns the text for a model whose weights have type `dtype`, such as `float32`. Fails for models
// that no class of transformers computes.
Result<std::string> FormatHfConfig(const ModelConfig& config, std::string_view dtype);

}  // namespace heddle::run
