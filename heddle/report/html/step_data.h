// A simulated step as the data of a report's page: JSON in columns, so that 10,000 nodes take a few
// hundred KiB.
//
// Nodes are in the order of the schedule. Texts are indices into `strings`. Times are in
// nanoseconds, sizes in bytes. Some columns have differences to the previous entry.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/compile/manager/manager.h"
#include "heddle/report/comparison.h"

namespace heddle {

// JSON inside a script element: only ASCII, and no `<`.
std::string PageJson(const nlohmann::ordered_json& json);
// Any bytes as such JSON.
std::string PageQuoted(std::string_view text);

// `passes`: the passes that produced the step, if known.
std::string FormatStepData(const SimulatedStep& step, std::span<const compile::PassRecord> passes);

}  // namespace heddle
