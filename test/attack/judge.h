// Runs a command in this process and checks how it ended.
#pragma once

#include <string>
#include <vector>

namespace heddle {

// Runs `heddle ARGS...` on files in the current directory. Returns the fault in one line; empty if
// there is none. Correct ends are a graph that is accepted and printed correctly, and an error for
// the author of the input.
std::string Judge(const std::vector<std::string>& args, bool& accepted);

}  // namespace heddle
