#include "heddle/run/train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/base/hash.h"
#include "heddle/run/aten/error_message.h"

namespace heddle::run {
namespace {

// Draws a token by the logits of a position. `number` counts draws.
int64_t Draw(const at::Tensor& logits, const GenerateOptions& options, uint64_t number) {
  at::Tensor scores = logits.to(at::kDouble).contiguous();
  const double* score = scores.const_data_ptr<double>();
  std::vector<int64_t> order(static_cast<size_t>(scores.numel()));
  std::iota(order.begin(), order.end(), 0);
  // A stable sort breaks ties the same way on every platform.
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return score[a] > score[b]; });
  if (options.temperature <= 0) return order[0];
  size_t most = order.size();
  if (options.top_k > 0) most = std::min(most, static_cast<size_t>(options.top_k));
  std::vector<double> up_to;
  double sum = 0;
  for (size_t i = 0; i < most; ++i) {
    sum += std::exp((score[order[i]] - score[order[0]]) / options.temperature);
    up_to.push_back(sum);
  }
  double at = static_cast<double>(Scramble(options.seed ^ Scramble(number)) >> 11) * 0x1p-53 * sum;
  auto drawn = static_cast<size_t>(std::ranges::upper_bound(up_to, at) - up_to.begin());
  return order[std::min(drawn, most - 1)];
}

}  // namespace

Result<std::vector<int64_t>> Generate(const Model& model, const ParamSource& source,
                                      std::vector<int64_t> prompt, const GenerateOptions& options) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> params;
  for (size_t p = 0; p < model.params.size(); ++p) {
    HEDDLE_TRY(at::Tensor param, source(p));
    params.push_back(std::move(param));
  }
  std::vector<at::Tensor> inputs;
  for (const StepInput& input : model.inputs) {
    inputs.push_back(input.role == InputRole::kBuffer ? MakeBuffer(model, input)
                                                      : at::zeros(input.shape, at::kLong));
  }
  at::Tensor tokens = inputs[inputs.size() - 2];
  auto* cells = tokens.mutable_data_ptr<int64_t>();
  int64_t room = model.batch.seq_len;
  std::vector<int64_t> made;
  try {
    while (static_cast<int64_t>(made.size()) < options.tokens) {
      auto known = std::min(room, static_cast<int64_t>(prompt.size()));
      std::copy(prompt.end() - known, prompt.end(), cells);
      at::Tensor logits = model.logits(params, inputs)[0][known - 1];
      int64_t next = Draw(logits, options, made.size());
      if (next == options.end) break;
      made.push_back(next);
      prompt.push_back(next);
      if (options.on_token) options.on_token(made);
    }
  } catch (const std::exception& error) {
    return Error(Diag::kRunFault, "the model failed: {}", AtenErrorMessage(error));
  }
  return made;
}

}  // namespace heddle::run
