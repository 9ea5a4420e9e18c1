#include "heddle/cli/torch/published.h"

namespace heddle {
namespace {

struct Published {
  std::string_view family;
  std::string_view flavor;
  int64_t tensor;
  std::string_view policy;
};

// Its report on H100 of December 2024 and its training configurations: fully sharded, with tensor parallelism within nodes for the large
// models. 405B runs there with eight pipeline stages, too, which is left out.
constexpr std::string_view kSource = "TorchTitan";
constexpr Published kPublished[] = {
    {"llama3", "8B", 1, "selective"},
    {"llama3", "70B", 8, "full"},
    {"llama3", "405B", 8, "full"},
};

}  // namespace

std::optional<PublishedPlan> PublishedFor(std::string_view family, std::string_view flavor,
                                          int64_t devices, int64_t global_batch) {
  for (const Published& one : kPublished) {
    if (one.family != family || one.flavor != flavor || devices % one.tensor != 0) continue;
    int64_t data = devices / one.tensor;
    if (global_batch % data != 0) continue;
    SearchPoint point{.arrangement = {.shard = data, .tensor = one.tensor},
                      .policy = std::string(one.policy)};
    return PublishedPlan{kSource, std::move(point)};
  }
  return std::nullopt;
}

}  // namespace heddle
