#include "heddle/cli/torch/plan/published.h"

#include "heddle/run/models/family.h"

namespace heddle {
namespace {

constexpr std::string_view kSource = "TorchTitan's settings, simulated";

}  // namespace

std::optional<PublishedPlan> PublishedFor(const run::ModelConfig& config, int64_t devices,
                                          int64_t global_batch) {
  for (const run::PublishedRun& one : config.family->published) {
    if (one.flavor != config.flavor || devices % one.tensor != 0) continue;
    int64_t data = devices / one.tensor;
    if (global_batch % data != 0 || data % one.experts != 0) continue;
    // A larger batch becomes micro-batches.
    int64_t sequences = global_batch / data;
    int64_t micro = sequences % one.sequences == 0 ? sequences / one.sequences : 1;
    search::SearchPoint point{.arrangement = {.shard = data,
                                              .tensor = one.tensor,
                                              .experts = one.experts,
                                              .micro_batches = micro},
                              .policy = std::string(one.policy)};
    return PublishedPlan{kSource, std::move(point)};
  }
  return std::nullopt;
}

}  // namespace heddle
