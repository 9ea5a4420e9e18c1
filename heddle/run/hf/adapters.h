// Exports models with adapters (LoraConfig).
#pragma once

#include <string>

#include "heddle/run/hf/export.h"

namespace heddle::run {

// Returns the model without its adapters.
Result<Model> WithoutAdapters(const Model& model);
// Returns the weights of WithoutAdapters, with the products of the adapters added. `model` must
// outlive the result.
ParamSource MergedParams(const Model& model, const ParamSource& params);

// Writes the adapters as a folder that PEFT loads: adapter_model.safetensors and
// adapter_config.json. `base` names the weights that they adapt.
Result<HfExport> ExportAdapters(const Model& model, const ParamSource& params,
                                const std::string& base, const std::string& folder, DType dtype);

}  // namespace heddle::run
