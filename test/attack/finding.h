// What an attack found, made small and written down.
#pragma once

#include <map>
#include <string>

#include "test/attack/commands.h"
#include "test/attack/watch.h"

namespace heddle {

struct Found {
  Args args;
  // The files that the command reads, by name.
  std::map<std::string, std::string> files;
  // What is wrong, one line.
  std::string fault;
};

// The fault without names and numbers: the same for findings of one cause, mostly.
std::string Signature(const std::string& fault);

// Runs a command alone, on files in a directory of its own. What is wrong; empty if nothing is.
std::string RunAlone(const Args& args, const std::map<std::string, std::string>& files,
                     const Limits& limits);

// Drops lines and tokens of the files as long as the fault stays and time is left.
Found Minimize(Found finding, const Limits& limits, double seconds);

// Writes the files of a finding and, as `README`, the command that repeats it.
Status WriteFinding(const Found& finding, const std::string& directory);

}  // namespace heddle
