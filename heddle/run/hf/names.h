// What Hugging Face calls the weights of Heddle's models, and how it lays them out.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/models/config.h"

namespace heddle::run {

struct HfWeight {
  // The tensors that make it up: itself, or one for each expert.
  std::vector<std::string> names;
  bool stacked = false;
  // Rows of so many heads stand in another order, for rotary embedding of halves instead of pairs; 0 for rows in ours.
  int64_t rotated_heads = 0;
};

// Of a parameter or a bias of experts, by its full name.
HfWeight HfWeightOf(const ModelConfig& config, const std::string& name);

// Their tensors to ours, and back.
at::Tensor FromHf(const HfWeight& weight, const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> ToHf(const HfWeight& weight, const at::Tensor& tensor);

}  // namespace heddle::run
