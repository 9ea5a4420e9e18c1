#include "heddle/run/metrics/step_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heddle/core/base/text.h"

namespace heddle::run {
namespace {

// TorchTitan's colors of a step line.
constexpr std::string_view kRed = "\x1b[31m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kBlue = "\x1b[34m";
constexpr std::string_view kMagenta = "\x1b[35m";
constexpr std::string_view kCyan = "\x1b[36m";
constexpr std::string_view kOrange = "\x1b[38;2;180;60;0m";
constexpr std::string_view kTurquoise = "\x1b[38;2;54;234;195m";
constexpr std::string_view kReset = "\x1b[39m";

class Line {
 public:
  explicit Line(bool color) : color_(color) {}
  Line& Add(std::string_view color, std::string_view text) {
    if (!text_.empty()) text_ += "  ";
    if (color_) text_ += color;
    text_ += text;
    return *this;
  }
  std::string Take() { return std::move(text_) + std::string(color_ ? kReset : ""); }

 private:
  bool color_;
  std::string text_;
};

std::string Memory(const StepMetrics& m) {
  return fmt::format("memory: {:5.2f}GiB({:.2f}%)", static_cast<double>(m.memory.value) * 0x1p-30,
                     100 * m.memory_share);
}

// Formats a rate as `1,234`; huge and non-finite numbers without commas.
std::string Rate(double rate) {
  if (!(std::abs(rate) < 1e18)) return fmt::format("{}", rate);
  return WithCommas(std::llround(rate));
}

}  // namespace

std::optional<double> ExpertImbalance(const StepMetrics& m) {
  std::optional<double> most;
  for (const ExpertLoad& load : m.experts) {
    int64_t all = std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
    if (all == 0) continue;
    double mean = static_cast<double>(all) / static_cast<double>(load.tokens.size());
    most = std::max(most.value_or(0), static_cast<double>(std::ranges::max(load.tokens)) / mean);
  }
  return most;
}

std::optional<double> ValidationPerplexity(const StepMetrics& m) {
  if (!m.validation_loss || !m.is_cross_entropy) return std::nullopt;
  return std::exp(*m.validation_loss);
}

std::string StepLine(const StepMetrics& m, bool color) {
  // Adds commas, as in `1,234.50`.
  std::string tflops = fmt::format("{:.2f}", m.tflops);
  if (std::abs(m.tflops) >= 1000 && std::abs(m.tflops) < 1e15)
    tflops = WithCommas(static_cast<int64_t>(m.tflops)) + tflops.substr(tflops.find('.'));
  Line line(color);
  line.Add(kRed, fmt::format("step: {:2}", m.step))
      .Add(kGreen, fmt::format("loss: {:>8.5f}", m.loss))
      .Add(kOrange, fmt::format("grad_norm: {:>7.4f}", m.grad_norm))
      .Add(kTurquoise, Memory(m))
      .Add(kBlue, "tps: " + Rate(m.tps));
  if (tflops != "0.00") line.Add(kCyan, "tflops: " + tflops);
  if (m.mfu) line.Add(kMagenta, fmt::format("mfu: {:.2f}%", 100 * *m.mfu));
  if (std::optional<double> times = ExpertImbalance(m))
    line.Add(kYellow, fmt::format("experts: {:.2f}x", *times));
  return line.Take();
}

std::string ValidationLine(const StepMetrics& m, bool color) {
  Line line(color);
  line.Add(kYellow, fmt::format("validate step: {:2}", m.step))
      .Add(kGreen, fmt::format("loss: {:>7.4f}", m.validation_loss.value()));
  if (std::optional<double> perplexity = ValidationPerplexity(m))
    line.Add(kOrange, fmt::format("perplexity: {:.5g}", *perplexity));
  return line.Add(kTurquoise, Memory(m)).Add(kBlue, "tps: " + Rate(m.tps)).Take();
}

std::string SampleLine(int64_t step, const TextSample& sample, bool color) {
  return Line(color)
      .Add(kYellow, fmt::format("sample step: {:2}", step))
      .Add(kBlue, "prompt: " + Quoted(sample.prompt))
      .Add(kGreen, "text: " + Quoted(sample.text))
      .Take();
}

}  // namespace heddle::run
