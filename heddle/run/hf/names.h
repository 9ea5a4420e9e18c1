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
  // HfName::transposed and HfName::columns. Rows are those of the weight.
  bool transposed = false;
  bool columns = false;
};

// Returns the Hugging Face tensors of a parameter or a bias of experts, given by its full name.
HfWeight HfWeightOf(const ModelConfig& config, const std::string& name);

// Returns the shape of the tensors of a weight with this shape.
std::vector<int64_t> HfShape(const HfWeight& weight, std::vector<int64_t> shape);
// Converts tensors from Hugging Face's layout.
at::Tensor FromHf(const HfWeight& weight, const std::vector<at::Tensor>& tensors);
// Writes a weight into its tensors, which are created if `theirs` is empty. With `rows`, a tensor
// has several weights.
void ToHf(const HfWeight& weight, const at::Tensor& tensor, std::vector<at::Tensor>& theirs);

}  // namespace heddle::run
