// Statistics of a graph as text and JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/core/analysis/stats.h"

namespace heddle {

std::string FormatStats(const GraphStats& stats);
nlohmann::ordered_json ToJson(const GraphStats& stats);
nlohmann::ordered_json ToJson(const std::vector<CollectiveStats>& collectives);

// Indented tables, with at most `most` live values. Empty if there is nothing to list.
std::string FormatCollectives(const std::vector<CollectiveStats>& collectives, size_t indent);
std::string FormatAlive(const std::vector<AliveStats>& alive, size_t most, size_t indent);

}  // namespace heddle
