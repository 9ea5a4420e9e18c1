// Runs a command in this process and judges how it ended.
#pragma once

#include <string>
#include <vector>

namespace heddle {

// Runs `heddle ARGS...` on files of the current directory. What is wrong with how it ended, one line; empty if nothing is: a graph was
// accepted and what was printed is right, or it was refused in words for its author.
std::string Judge(const std::vector<std::string>& args, bool& accepted);

}  // namespace heddle
