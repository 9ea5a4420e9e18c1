// The help texts of the program, for a terminal and as a man page.
#pragma once

#include "heddle/cli/command_set.h"

namespace heddle {

// The width of help that does not go to a terminal.
constexpr size_t kDefaultWidth = 100;

// The help of the whole program, and of one command, in lines of at most `width` columns where
// words allow it.
std::string FormatHelp(const std::vector<CommandInfo>& commands, size_t width);
std::string FormatHelp(const CommandInfo& command, size_t width);

// heddle(1), in roff.
std::string FormatManPage(const std::vector<CommandInfo>& commands);

}  // namespace heddle
