// Loads the first weights of a training run from a file of Heddle's or a Hugging Face folder.
#pragma once

#include <string>

#include "heddle/run/models/model.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

// Loads the parameters of a model from a .safetensors file or a Hugging Face folder. Biases of
// experts in a folder are stored into the model. The error lists all tensors that are missing,
// unexpected, of another shape, or of an element type that the master weights cannot represent
// exactly. The model must outlive the result.
Result<ParamSource> LoadParams(Model& model, const std::string& path);

}  // namespace heddle::run
