// Hugging Face's names for the weights of Heddle's models, and their layouts.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/models/family.h"

namespace heddle::run {

struct HfWeight {
  // The tensors of the weight: a single one, or one per expert.
  std::vector<std::string> names;
  bool stacked = false;
  // Number of heads whose rows are reordered, because Hugging Face rotates halves of a head instead
  // of pairs; 0 if rows are not reordered.
  int64_t rotated_heads = 0;
  // The rows of the tensor that are this weight; `all` is 0 if the whole tensor is.
  HfRows rows;
};

// Returns the Hugging Face tensors of a parameter or a bias of experts, given by its full name.
HfWeight HfWeightOf(const ModelConfig& config, const std::string& name);

// Converts tensors from and to Hugging Face's layout. ToHf returns only the weight's own rows.
at::Tensor FromHf(const HfWeight& weight, const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> ToHf(const HfWeight& weight, const at::Tensor& tensor);

}  // namespace heddle::run
