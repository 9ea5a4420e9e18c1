// Shrinks and writes down the findings of an attack.
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
  // The fault, in one line.
  std::string fault;
};

// Returns the fault without names and numbers. Findings with the same cause mostly have the same
// signature.
std::string Signature(const std::string& fault);

// Runs a command on files in its own directory. Returns the fault; empty if there is none.
std::string RunAlone(const Args& args, const std::map<std::string, std::string>& files,
                     const Limits& limits);

// Drops lines and tokens of the files while the fault remains and time is left.
Found Minimize(Found finding, const Limits& limits, double seconds);

// Writes the files of a finding, and a `README` with the command that repeats it.
Status WriteFinding(const Found& finding, const std::string& directory);

}  // namespace heddle
