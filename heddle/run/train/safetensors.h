// Reads and writes safetensors files (checkpoint/safetensors.h) as ATen tensors.
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

// Reads the tensor of an entry of this file.
Result<at::Tensor> ReadTensor(const SafetensorsFile& file, const SafetensorsFile::Entry& entry);

// Returns the content of a file with these tensors, in this order, and with `metadata` in its
// header. Fails for element types that the format lacks.
Result<std::string> FormatSafetensors(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata = {});

// Loads the parameters of a model from a file. The error lists all tensors that are missing,
// unexpected, of another shape, or of an element type that the master weights cannot represent
// exactly. The model must outlive the result.
Result<ParamSource> ParamsFromFile(const Model& model, const std::string& path);

}  // namespace heddle::run
