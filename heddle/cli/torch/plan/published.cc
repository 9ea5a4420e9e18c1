#include "heddle/cli/torch/plan/published.h"

namespace heddle {
namespace {

struct Published {
  std::string_view family;
  std::string_view flavor;
  int64_t tensor;
  int64_t experts;
  // Of a data-parallel rank, in one pass.
  int64_t sequences;
  std::string_view policy;
};

// Its training configurations, and for Llama 3 its report on H100 of December 2024: fully sharded, with tensor parallelism within nodes
// for the large models. Where a configuration names no checkpointing, its default is selective. 405B runs there with eight pipeline
// stages and in fp8, too, which is left out.
constexpr std::string_view kSource = "TorchTitan's settings, simulated";
constexpr Published kPublished[] = {
    {"llama3", "8B", 1, 1, 1, "selective"},       {"llama3", "70B", 8, 1, 8, "full"},
    {"llama3", "405B", 8, 1, 2, "full"},          {"qwen3", "14B", 1, 1, 4, "selective"},
    {"deepseek_v3", "16B", 1, 8, 4, "selective"}, {"deepseek_v3", "671B", 1, 2, 4, "selective"},
};

}  // namespace

std::optional<PublishedPlan> PublishedFor(std::string_view family, std::string_view flavor,
                                          int64_t devices, int64_t global_batch) {
  for (const Published& one : kPublished) {
    if (one.family != family || one.flavor != flavor || devices % one.tensor != 0) continue;
    int64_t data = devices / one.tensor;
    if (global_batch % data != 0 || data % one.experts != 0) continue;
    // Of more sequences it makes micro-batches.
    int64_t sequences = global_batch / data;
    int64_t micro = sequences % one.sequences == 0 ? sequences / one.sequences : 1;
    SearchPoint point{.arrangement = {.shard = data,
                                      .tensor = one.tensor,
                                      .experts = one.experts,
                                      .micro_batches = micro},
                      .policy = std::string(one.policy)};
    return PublishedPlan{kSource, std::move(point)};
  }
  return std::nullopt;
}

}  // namespace heddle
