#include "heddle/run/metrics/scalars.h"

#include <fmt/core.h>

namespace heddle::run {

std::vector<std::pair<std::string, double>> Scalars(const StepMetrics& m) {
  std::vector<std::pair<std::string, double>> out = {
      {"loss_metrics/global_avg_loss", m.loss},
      {"grad_norm", m.grad_norm},
      {"lr", m.lr},
      {"throughput(tps)", m.tps},
      {"tflops", m.tflops},
      {"time_metrics/end_to_end(s)", m.seconds},
      {"time_metrics/data_loading(s)", m.data_seconds},
      {"time_metrics/data_loading(%)", m.seconds > 0 ? 100 * m.data_seconds / m.seconds : 0},
      {"memory/max_reserved(GiB)", static_cast<double>(m.memory.value) * 0x1p-30},
      {"memory/max_reserved(%)", 100 * m.memory_share}};
  auto add = [&](std::string_view name, std::optional<double> value) {
    if (value) out.emplace_back(name, *value);
  };
  if (m.mfu) add("mfu(%)", 100 * *m.mfu);
  add("validation_metrics/loss", m.validation_loss);
  add("validation_metrics/perplexity", ValidationPerplexity(m));
  add("expert_imbalance", ExpertImbalance(m));
  for (const ExpertLoad& load : m.experts) {
    for (size_t e = 0; e < load.tokens.size(); ++e)
      out.emplace_back(fmt::format("tokens_per_expert/{}/{}", load.layer, e),
                       static_cast<double>(load.tokens[e]));
  }
  return out;
}

}  // namespace heddle::run
