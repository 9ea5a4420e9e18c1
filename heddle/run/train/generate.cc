#include "heddle/run/train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/base/hash.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/aten/error_message.h"

namespace heddle::run {
namespace {

// Tokens by falling score, equal ones by number. Sorts only the ranks that are read.
class Ranking {
 public:
  explicit Ranking(std::span<const double> scores) : scores_(scores), order_(scores.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }
  int64_t operator[](size_t rank) {
    if (rank >= sorted_) Sort(std::max<size_t>(64, 4 * rank));
    return order_[rank];
  }

 private:
  void Sort(size_t end) {
    end = std::min(end, order_.size());
    auto first = order_.begin() + static_cast<int64_t>(sorted_);
    std::partial_sort(first, order_.begin() + static_cast<int64_t>(end), order_.end(),
                      [&](int64_t a, int64_t b) {
                        return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
                      });
    sorted_ = end;
  }

  std::span<const double> scores_;
  std::vector<int64_t> order_;
  size_t sorted_ = 0;
};

}  // namespace

int64_t DrawToken(const at::Tensor& logits, const GenerateOptions& options, uint64_t number) {
  at::Tensor wide = logits.to(at::kDouble).contiguous();
  std::span<const double> scores(wide.const_data_ptr<double>(), static_cast<size_t>(wide.numel()));
  auto best = std::ranges::max_element(scores);
  if (options.temperature <= 0) return best - scores.begin();
  auto weight = [&](int64_t token) {
    return std::exp((scores[token] - *best) / options.temperature);
  };
  Ranking ranking(scores);
  size_t most = scores.size();
  double sum = 0;
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(most)) {
    most = static_cast<size_t>(options.top_k);
    for (size_t rank = 0; rank < most; ++rank) sum += weight(ranking[rank]);
  } else {
    for (size_t token = 0; token < most; ++token) sum += weight(static_cast<int64_t>(token));
  }
  if (options.top_p < 1) {
    double enough = options.top_p * sum;
    size_t kept = 0;
    for (sum = 0; kept < most && (kept == 0 || sum < enough);) sum += weight(ranking[kept++]);
    most = kept;
  }
  double at = static_cast<double>(Scramble(options.seed ^ Scramble(number)) >> 11) * 0x1p-53 * sum;
  double up_to = 0;
  for (size_t rank = 0; rank + 1 < most; ++rank) {
    up_to += weight(ranking[rank]);
    if (up_to > at) return ranking[rank];
  }
  return ranking[most - 1];
}

Result<std::vector<int64_t>> Generate(const Model& model, const ParamSource& source,
                                      std::vector<int64_t> prompt, const GenerateOptions& options) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> params;
  for (size_t p = 0; p < model.params.size(); ++p) {
    HEDDLE_TRY(at::Tensor param, source(p));
    // Once, instead of for every token.
    params.push_back(param.to(ToScalarType(model.numerics.compute)));
  }
  std::vector<at::Tensor> inputs;
  for (const StepInput& input : model.inputs) {
    inputs.push_back(input.role == InputRole::kBuffer ? MakeBuffer(model, input)
                                                      : at::zeros(input.shape, at::kLong));
  }
  AttentionCache cache(model.batch.seq_len);
  std::vector<int64_t> made;
  try {
    while (static_cast<int64_t>(made.size()) < options.tokens) {
      // Without its first token, all positions of a sequence change.
      if (cache.size() == cache.room()) cache.Clear();
      auto known = std::min(cache.room(), static_cast<int64_t>(prompt.size()));
      std::span<const int64_t> next(prompt.end() - (known - cache.size()), prompt.end());
      inputs[inputs.size() - 2] = at::tensor(next, at::kLong).unsqueeze(0);
      at::Tensor logits = model.next_logits(params, inputs, cache);
      int64_t token = DrawToken(logits.flatten(), options, made.size());
      if (token == options.end) break;
      made.push_back(token);
      prompt.push_back(token);
      if (options.on_token && !options.on_token(made)) break;
    }
  } catch (const std::exception& error) {
    return Error(Diag::kRunFault, "the model failed: {}", AtenErrorMessage(error));
  }
  return made;
}

}  // namespace heddle::run
