// Converts text to a verified module.
#pragma once

#include <string>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Parses and verifies. Returns a valid module, or every diagnostic in text order.
Result<Module> ParseModule(std::string text, std::string file, const OpTable& ops);

}  // namespace heddle
