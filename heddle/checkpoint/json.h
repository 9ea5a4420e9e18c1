// Strict reading of JSON from files that may be damaged.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "heddle/base/result.h"

namespace heddle {

// Fails for what is no JSON object, for a key that an object has twice, which JSON overlooks, and for values that lie deeper than
// `most_depth`. `what` is for the messages: `its header`.
Result<nlohmann::json> ParseJsonStrictly(std::string_view text, std::string_view what,
                                         int most_depth);

// Describes why a document could not be read: "it has no `step`".
std::string JsonFault(const nlohmann::json::exception& error);

}  // namespace heddle
