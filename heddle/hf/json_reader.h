// JSON objects from files of others.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "heddle/base/result.h"

namespace heddle {

// An object, with no key twice and no deep nesting.
Result<nlohmann::json> ParseJsonObject(std::string_view text);

}  // namespace heddle
