// Published configurations for models of these sizes, for comparison with found plans.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "heddle/run/models/config.h"
#include "heddle/search/arrangement/plan_search.h"

namespace heddle {

struct PublishedPlan {
  // The author and the publication.
  std::string_view source;
  search::SearchPoint point;
};

// TorchTitan's configuration for this model on `devices` devices, with parameters sharded over the
// remaining ranks. Nullopt if it has none.
std::optional<PublishedPlan> PublishedFor(const run::ModelConfig& config, int64_t devices,
                                          int64_t global_batch);

}  // namespace heddle
