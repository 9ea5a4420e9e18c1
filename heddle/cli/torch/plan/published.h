// Configurations that others have published for models of these sizes, to be held beside what is found.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "heddle/run/models/config.h"
#include "heddle/search/arrangement/plan_search.h"

namespace heddle {

struct PublishedPlan {
  // Who, and where.
  std::string_view source;
  search::SearchPoint point;
};

// TorchTitan's for this model, on so many devices: the rest of them share the parameters. Nothing where it has none.
std::optional<PublishedPlan> PublishedFor(const run::ModelConfig& config, int64_t devices,
                                          int64_t global_batch);

}  // namespace heddle
