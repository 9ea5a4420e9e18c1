// Where training takes its first weights from: a file of Heddle's, or a Hugging Face folder.
#pragma once

#include <string>

#include "heddle/run/models/model.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

// The parameters of a model from a .safetensors file or from a Hugging Face folder. Biases of experts that a folder has become the
// model's. Fails with all names that are missing, that are not the model's, and that have another shape or an element type that the
// master weights cannot hold exactly. The model must outlive the source.
Result<ParamSource> LoadParams(Model& model, const std::string& path);

}  // namespace heddle::run
