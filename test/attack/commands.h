// The commands that the attack runs on an input.
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
// The files that commands write.
constexpr const char* kPlannedFile = "planned.hd";
constexpr const char* kLocalFile = "local.hd";

using Args = std::vector<std::string>;
// Runs one command. Returns whether it accepted its input.
using TryCommand = std::function<bool(const Args&)>;

// Makes the input of a number, writes its files, and runs every command on it. Returns whether the
// graph was accepted.
bool AttackWith(const Corpus& corpus, uint64_t seed, uint64_t number, const TryCommand& attempt);

}  // namespace heddle
