// config.json of a Hugging Face folder, and the model that it describes.
//
// Of the classes that Heddle has models for: LlamaForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, DeepseekV3ForCausalLM. Whatever
// would make transformers compute something else than Heddle does is refused by name, in both directions.
#pragma once

#include <string>
#include <string_view>

#include "heddle/core/base/result.h"
#include "heddle/run/models/config.h"

namespace heddle::run {

// The model that the text of a config.json describes; its flavor is `hf`.
Result<ModelConfig> ParseHfConfig(std::string_view text);
// The text for a model whose weights are of type `dtype` (`float32`). Fails for models that no class computes.
Result<std::string> FormatHfConfig(const ModelConfig& config, std::string_view dtype);

}  // namespace heddle::run
