// Safetensors files (checkpoint/safetensors.h) as ATen tensors.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/run/checkpoint/safetensors.h"
#include "heddle/run/models/model.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

// The tensor of an entry of this file.
Result<at::Tensor> ReadTensor(const SafetensorsFile& file, const SafetensorsFile::Entry& entry);

// The content of a file with these tensors, in this order, and what else its header says. Fails for element types that the format
// lacks.
Result<std::string> FormatSafetensors(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata = {});

// The parameters of a model from a file. Fails with all names that are missing, that are not the model's, and that have another shape
// or an element type that the master weights cannot hold exactly. The model must outlive the source.
Result<ParamSource> ParamsFromFile(const Model& model, const std::string& path);

}  // namespace heddle::run
