// Every input of a model's step, for tests. In training, each rank makes its own inputs.
#pragma once

#include <vector>

#include "heddle/run/models/init.h"

namespace heddle::run {

inline std::vector<at::Tensor> InitParams(const Model& model, uint64_t seed,
                                          DType dtype = DType::kF32) {
  std::vector<at::Tensor> params;
  for (const ParamSpec& param : model.params)
    params.push_back(InitParam(model, param, seed, dtype));
  return params;
}

// Returns buffers, tokens and labels, in this order.
inline std::vector<at::Tensor> MakeInputs(const Model& model, uint64_t seed, int64_t step) {
  std::vector<at::Tensor> inputs;
  for (const StepInput& input : model.inputs) {
    if (input.role == InputRole::kBuffer) inputs.push_back(MakeBuffer(model, input));
  }
  Batch batch =
      MakeBatch(model.config.vocab_size, model.batch.batch, model.batch.seq_len, seed, step);
  inputs.push_back(batch.tokens);
  inputs.push_back(batch.labels);
  return inputs;
}

}  // namespace heddle::run
