// Text to a module that keeps the rules.
#pragma once

#include <string>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Parses and verifies: a module that passes may rely on, or every diagnostic, in the order of the text.
Result<Module> ParseModule(std::string text, std::string file, const OpTable& ops);

}  // namespace heddle
