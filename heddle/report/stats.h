// The statistics of a graph, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/core/analysis/stats.h"

namespace heddle {

std::string FormatStats(const GraphStats& stats);
nlohmann::ordered_json ToJson(const GraphStats& stats);
nlohmann::ordered_json ToJson(const std::vector<CollectiveStats>& collectives);

// As tables, indented; empty if there is nothing to list. At most `most` of what is alive.
std::string FormatCollectives(const std::vector<CollectiveStats>& collectives, size_t indent);
std::string FormatAlive(const std::vector<AliveStats>& alive, size_t most, size_t indent);

}  // namespace heddle
