#include "heddle/models/init.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "heddle/aten/dtype.h"

namespace heddle {
namespace {

// A bijective scramble of 64 bits (splitmix64).
uint64_t Scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Nearly normal, mean 0, variance 1: the sum of twelve uniform numbers of 32 bits, less its mean. Exact in integers.
double Normal(uint64_t key) {
  uint64_t sum = 0;
  for (int i = 0; i < 6; ++i) {
    uint64_t bits = Scramble(key + static_cast<uint64_t>(i) * 0xD1B54A32D192ED03u);
    sum += (bits >> 32) + (bits & 0xFFFFFFFFu);
  }
  return (static_cast<double>(sum) - 6.0 * 4294967295.0) * 0x1p-32;
}

int64_t LayerOf(const std::string& name) {
  return name.starts_with("layers.") ? std::stoll(name.substr(7)) : 0;
}

}  // namespace

at::Tensor InitParam(const Model& model, const ParamSpec& param, uint64_t seed, DType dtype) {
  at::TensorOptions options = at::TensorOptions().dtype(ToScalarType(dtype));
  if (param.name.find("norm.weight") != std::string::npos) return at::ones(param.shape, options);
  at::Tensor tensor = at::empty(param.shape, at::kDouble);
  auto* data = tensor.data_ptr<double>();
  uint64_t base = Scramble(seed) ^ Hash64(param.name);
  Spread spread = model.config.family->spread(model.config, param.name, LayerOf(param.name));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    uint64_t key = Scramble(base + static_cast<uint64_t>(i));
    double x = Normal(key);
    while (std::abs(x) > spread.cut) x = Normal(key = Scramble(key));
    data[i] = x * spread.deviation;
  }
  return tensor.to(options.dtype(ToScalarType(dtype)));
}

std::vector<at::Tensor> InitParams(const Model& model, uint64_t seed, DType dtype) {
  std::vector<at::Tensor> params;
  for (const ParamSpec& param : model.params)
    params.push_back(InitParam(model, param, seed, dtype));
  return params;
}

Batch MakeBatch(int64_t vocab_size, int64_t rows, int64_t seq_len, uint64_t seed, int64_t step,
                int64_t first_row) {
  Batch batch{at::empty({rows, seq_len}, at::kLong), at::empty({rows, seq_len}, at::kLong)};
  auto key = (seed << 40) + (static_cast<uint64_t>(step) << 32);
  for (int64_t r = 0; r < rows; ++r) {
    uint64_t row = key + (static_cast<uint64_t>(first_row + r) << 16);
    auto token = [&](int64_t p) {
      return static_cast<int64_t>(Scramble(row + static_cast<uint64_t>(p)) %
                                  static_cast<uint64_t>(vocab_size));
    };
    auto* tokens = batch.tokens.data_ptr<int64_t>() + r * seq_len;
    auto* labels = batch.labels.data_ptr<int64_t>() + r * seq_len;
    for (int64_t p = 0; p < seq_len; ++p) {
      tokens[p] = token(p);
      labels[p] = token(p + 1);
    }
  }
  return batch;
}

std::vector<at::Tensor> MakeInputs(const Model& model, uint64_t seed, int64_t step) {
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

}  // namespace heddle
