#include "heddle/run/models/init.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/base/hash.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/data/synthetic.h"
#include "heddle/run/models/decoder.h"

namespace heddle::run {
namespace {

// Approximates a normal distribution with mean 0 and variance 1: the sum of twelve uniform 32-bit
// numbers minus its mean. Exact in integers.
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

namespace {

// PyTorch's initialization of linear layers: uniform up to 1 / sqrt(columns).
at::Tensor UniformInit(const ParamSpec& param, uint64_t seed) {
  at::Tensor tensor = at::empty(param.shape, at::kDouble);
  auto* data = tensor.data_ptr<double>();
  uint64_t base = Scramble(seed) ^ Hash64(param.name);
  double bound = 1 / std::sqrt(static_cast<double>(param.shape[1]));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    auto bits = static_cast<double>(Scramble(base + static_cast<uint64_t>(i)) >> 11);
    data[i] = (bits * 0x1p-52 - 1) * bound;
  }
  return tensor;
}

}  // namespace

at::Tensor InitParam(const Model& model, const ParamSpec& param, uint64_t seed, DType dtype) {
  at::TensorOptions options = at::TensorOptions().dtype(ToScalarType(dtype));
  if (param.name.ends_with(kLoraB)) return at::zeros(param.shape, options);
  if (param.name.ends_with(kLoraA)) return UniformInit(param, seed).to(options);
  if (param.name.find("norm.weight") != std::string::npos) {
    // The weights of such norms are added to 1.
    bool zeros = model.config.family->norm == NormKind::kOffsetRms;
    return zeros ? at::zeros(param.shape, options) : at::ones(param.shape, options);
  }
  bool bias = param.name.ends_with(".bias") || param.name.find("_bias_") != std::string::npos;
  if (bias) return at::zeros(param.shape, options);
  at::Tensor tensor = at::empty(param.shape, at::kDouble);
  auto* data = tensor.data_ptr<double>();
  uint64_t base = Scramble(seed) ^ Hash64(param.name);
  InitDistribution init = model.config.family->init(model.config, param.name, LayerOf(param.name));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    uint64_t key = Scramble(base + static_cast<uint64_t>(i));
    double x = Normal(key);
    while (std::abs(x) > init.cut) x = Normal(key = Scramble(key));
    data[i] = x * init.deviation;
  }
  return tensor.to(options.dtype(ToScalarType(dtype)));
}

at::Tensor DocumentPositions(const at::Tensor& ends) {
  HEDDLE_CHECK(ends.defined(), "the batch does not state where its documents end");
  at::Tensor positions = at::empty(ends.sizes(), at::kLong);
  at::Tensor rows = ends.contiguous();
  const bool* end = rows.const_data_ptr<bool>();
  auto* position = positions.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < ends.numel(); ++i) {
    bool first = i % ends.size(1) == 0 || end[i - 1];
    position[i] = first ? 0 : position[i - 1] + 1;
  }
  return positions;
}

Batch MakeBatch(int64_t vocab_size, int64_t rows, int64_t seq_len, uint64_t seed, int64_t step,
                int64_t first_row) {
  Batch batch{at::empty({rows, seq_len}, at::kLong), at::empty({rows, seq_len}, at::kLong)};
  auto numbers = [&](const at::Tensor& tensor) {
    return std::span(tensor.data_ptr<int64_t>(), static_cast<size_t>(tensor.numel()));
  };
  SyntheticRows({.vocab = vocab_size, .seq_len = seq_len, .seed = seed, .step = step}, first_row,
                numbers(batch.tokens), numbers(batch.labels));
  return batch;
}

}  // namespace heddle::run
