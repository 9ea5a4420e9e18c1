#include "heddle/run/capture/optimizer_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/core/base/text.h"

namespace heddle::run {

std::string_view Name(OptimizerName name) {
  constexpr std::string_view kNames[] = {"AdamW", "SGD", "Muon"};
  return kNames[static_cast<size_t>(name)];
}

OptimizerName OptimizerOptions::RuleOf(const ParamSpec& param) const {
  if (name != OptimizerName::kMuon) return name;
  bool matrix = param.shape.size() == 2 && param.name.starts_with("layers.");
  return matrix ? OptimizerName::kMuon : OptimizerName::kAdamW;
}

double OptimizerOptions::RateFactor(std::span<const int64_t> shape) const {
  auto rows = static_cast<double>(shape[0]);
  auto columns = static_cast<double>(shape[1]);
  return rate == MuonRate::kOriginal ? std::sqrt(std::max(1.0, rows / columns))
                                     : 0.2 * std::sqrt(std::max(rows, columns));
}

Result<std::array<double, 3>> OptimizerOptions::NsCoefficients() const {
  std::array<double, 3> numbers{};
  std::vector<std::string_view> texts = Split(ns_coefficients, ',');
  bool valid = texts.size() == numbers.size();
  for (size_t i = 0; valid && i < numbers.size(); ++i) {
    const char* end = texts[i].data() + texts[i].size();
    auto [at, error] = std::from_chars(texts[i].data(), end, numbers[i]);
    valid = error == std::errc() && at == end && std::isfinite(numbers[i]);
  }
  if (valid) return numbers;
  return Error(Diag::kBadChoice,
               "--optimizer.ns_coefficients is `{}`, expected three numbers, as in "
               "3.4445,-4.775,2.0315",
               ns_coefficients);
}

Status CheckOptimizer(const OptimizerOptions& options, std::span<const ParamSpec> params) {
  if (options.name == OptimizerName::kSgd && options.Nesterov() &&
      (options.Momentum() == 0 || options.dampening != 0))
    return Error(Diag::kBadChoice,
                 "--optimizer.nesterov needs momentum without dampening, but "
                 "--optimizer.momentum is {} and --optimizer.dampening is {}",
                 options.Momentum(), options.dampening);
  if (options.name != OptimizerName::kMuon) return Done{};
  HEDDLE_RETURN_IF_ERROR(options.NsCoefficients());
  if (options.ns_steps < 0 || options.ns_steps >= 100)
    return Error(Diag::kBadChoice, "--optimizer.ns_steps is {}, expected 0 to 99",
                 options.ns_steps);
  auto by_muon = [&](const ParamSpec& param) {
    return param.trainable && options.RuleOf(param) == OptimizerName::kMuon;
  };
  if (std::ranges::any_of(params, by_muon)) return Done{};
  return Error(Diag::kBadChoice,
               "--optimizer.name=Muon updates the matrices of layers, but the model has none; use "
               "AdamW or SGD");
}

}  // namespace heddle::run
