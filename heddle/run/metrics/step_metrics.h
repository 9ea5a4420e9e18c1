// The metrics of a training step, and the lines that print them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/core/base/units.h"

namespace heddle::run {

// Number of tokens that each expert of a layer received.
struct ExpertLoad {
  std::string layer;
  std::vector<int64_t> tokens;
};

// Text that the model generated after a step.
struct TextSample {
  std::string prompt;
  std::string text;
};

struct StepMetrics {
  // From 1.
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  // Peak memory, and its share of the device's memory from 0 to 1.
  Bytes memory = {};
  double memory_share = 0;
  // Tokens and TFLOP per second and rank.
  double tps = 0;
  double tflops = 0;
  // Model FLOP/s utilization, from 0 to 1. Unset if the peak of the device is unknown.
  std::optional<double> mfu = {};
  double seconds = 0;
  // Part of `seconds` that the step waited for data.
  double data_seconds = 0;
  std::optional<double> validation_loss = {};
  // Whether losses are the mean cross entropy, without a z-loss or an auxiliary loss.
  bool is_cross_entropy = true;
  // Empty for models without experts.
  std::vector<ExpertLoad> experts = {};
  // Most steps have none.
  std::vector<TextSample> samples = {};
};

// Returns the load of the fullest expert over the mean of its layer, for the most imbalanced layer.
// nullopt without experts.
std::optional<double> ExpertImbalance(const StepMetrics& metrics);

// Returns exp(validation loss). nullopt without a validation loss, and if that loss has further
// terms.
std::optional<double> ValidationPerplexity(const StepMetrics& metrics);

// Returns TorchTitan's line: `step:  1  loss:  8.12345  grad_norm:  1.2345  memory:  0.52GiB(1.10%)
// tps: 1,234  tflops: 0.12  mfu: 3.10%`, without an unknown MFU or tflops that print as 0.00. For
// models with experts it ends with their imbalance, as in `experts: 1.35x`.
std::string StepLine(const StepMetrics& metrics, bool color);
// Returns `validate step:  1  loss:  8.1234  perplexity: 3372.5  memory: ...  tps: ...`.
// Precondition: a validation loss.
std::string ValidationLine(const StepMetrics& metrics, bool color);
// Returns `sample step: 10  prompt: "Once"  text: " upon a time\n"`.
std::string SampleLine(int64_t step, const TextSample& sample, bool color);

}  // namespace heddle::run
