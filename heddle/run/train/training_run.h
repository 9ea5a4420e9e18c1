// TrainingRun: a job that trains step by step, and the state of its ranks after each step. Two runs
// of one job, such as graph and eager, can be compared.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"

namespace heddle::run {

// Tensors that a rank stores per parameter. The gradient is that of the last step, before clipping.
enum class StateKind : uint8_t { kParam, kExpAvg, kExpAvgSq, kMomentum, kGrad };
inline constexpr StateKind kStateKinds[] = {StateKind::kGrad, StateKind::kExpAvg,
                                            StateKind::kExpAvgSq, StateKind::kMomentum,
                                            StateKind::kParam};
// State of the optimizer.
inline constexpr StateKind kMomentKinds[] = {StateKind::kExpAvg, StateKind::kExpAvgSq,
                                             StateKind::kMomentum};
// Returns `parameter`, `exp_avg`, `exp_avg_sq`, `momentum_buffer` or `gradient`.
std::string_view Name(StateKind kind);

class TrainingRun {
 public:
  virtual ~TrainingRun() = default;

  // Trains one step. Steps count from 1.
  virtual Status Step(double lr) = 0;
  // Number of completed steps.
  virtual int64_t steps() const = 0;
  // The ranks of this process. The functions below take a rank's position in this list.
  virtual std::span<const int64_t> ranks() const = 0;
  // Returns the position of a rank; nullopt if it is in another process.
  std::optional<size_t> Find(int64_t rank) const {
    auto found = std::ranges::find(ranks(), rank);
    if (found == ranks().end()) return std::nullopt;
    return static_cast<size_t>(found - ranks().begin());
  }
  // Loss and gradient norm of the last step on a rank. The norm is undefined without clipping.
  virtual at::Tensor loss(size_t at) const = 0;
  virtual at::Tensor grad_norm(size_t at) const = 0;
  // State of a parameter, in registration order; undefined if there is none.
  virtual at::Tensor state(StateKind kind, size_t at, size_t param) const = 0;
};

}  // namespace heddle::run
