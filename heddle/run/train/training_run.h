// TrainingRun: a job that is trained step by step, whoever computes it, and what its ranks hold in between. Two runs of one job
// can be compared.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"

namespace heddle::run {

// What a rank holds of a parameter. The gradient is that of the last step, before clipping.
enum class Held : uint8_t { kParam, kExpAvg, kExpAvgSq, kGrad };
inline constexpr Held kAllHeld[] = {Held::kGrad, Held::kExpAvg, Held::kExpAvgSq, Held::kParam};
// `parameter`, `exp_avg`, `exp_avg_sq`, `gradient`.
std::string_view Name(Held held);

class TrainingRun {
 public:
  virtual ~TrainingRun() = default;

  // Trains one step. Steps count from 1.
  virtual Status Step(double lr) = 0;
  // Steps done.
  virtual int64_t steps() const = 0;
  // The ranks of this process. Below, a rank is named by its position here.
  virtual std::span<const int64_t> ranks() const = 0;
  // The position of a rank, if this process has it.
  std::optional<size_t> Find(int64_t rank) const {
    auto found = std::ranges::find(ranks(), rank);
    if (found == ranks().end()) return std::nullopt;
    return static_cast<size_t>(found - ranks().begin());
  }
  // Of the last step, as the rank has them. The norm is undefined where nothing is clipped.
  virtual at::Tensor loss(size_t at) const = 0;
  virtual at::Tensor grad_norm(size_t at) const = 0;
  // Of a parameter in registration order; undefined where there is none.
  virtual at::Tensor held(Held held, size_t at, size_t param) const = 0;
};

}  // namespace heddle::run
