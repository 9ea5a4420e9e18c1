// What is known of a training step when it is over, and the lines that people read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/core/base/units.h"

namespace heddle::run {

// How many tokens each expert of a layer got.
struct ExpertLoad {
  std::string layer;
  std::vector<int64_t> tokens;
};

struct StepMetrics {
  // From 1.
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  // The most that was in use, and its share of what there is, from 0 to 1.
  Bytes memory = {};
  double memory_share = 0;
  // Tokens and TFLOP in a second, of one rank.
  double tps = 0;
  double tflops = 0;
  // Share of the peak, from 0 to 1. None where the peak of the device is not known.
  std::optional<double> mfu = {};
  double seconds = 0;
  // What data took of them.
  double data_seconds = 0;
  std::optional<double> validation_loss = {};
  // Empty without experts.
  std::vector<ExpertLoad> experts = {};
};

// How many times as many tokens the fullest expert has as the mean of its layer, in the layer where that is the most. None without
// experts.
std::optional<double> ExpertImbalance(const StepMetrics& metrics);

// TorchTitan's: `step:  1  loss:  8.12345  grad_norm:  1.2345  memory:  0.52GiB(1.10%)  tps: 1,234  tflops: 0.12  mfu: 3.10%`. With
// experts, their imbalance behind it: `experts: 1.35x`.
std::string StepLine(const StepMetrics& metrics, bool color);
// `validate step:  1  loss:  8.1234  memory: ...  tps: ...`. The step must have a validation loss.
std::string ValidationLine(const StepMetrics& metrics, bool color);

}  // namespace heddle::run
