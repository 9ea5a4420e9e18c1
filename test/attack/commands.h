// Which commands are run on an input.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "test/attack/mutate.h"

namespace heddle {

// The files that commands read, in the current directory.
constexpr const char* kGraphFile = "graph.hd";
constexpr const char* kOriginalFile = "original.hd";
constexpr const char* kPlanFile = "graph.plan";
constexpr const char* kProblemFile = "problem.json";
// What a command wrote.
constexpr const char* kPlannedFile = "planned.hd";
constexpr const char* kLocalFile = "local.hd";

using Args = std::vector<std::string>;
// Runs one command; whether it accepted its input.
using TryCommand = std::function<bool(const Args&)>;

// Makes the input of a number, writes its files, and tries every command on it. Whether the graph was accepted.
bool AttackWith(const Corpus& corpus, uint64_t seed, uint64_t number, const TryCommand& attempt);

}  // namespace heddle
