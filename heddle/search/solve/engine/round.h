// Assignments that keep the rows, made from others that do or do not.
#pragma once

#include <vector>

#include "heddle/search/solve/reduce/core.h"
#include "heddle/search/solve/reduce/limit.h"

namespace heddle::search {

// What an assignment takes of each row.
std::vector<double> Amounts(const Core& core, const std::vector<uint32_t>& x);
bool KeepsRows(const Core& core, const std::vector<uint32_t>& x);
// The largest step that one variable can make in each row.
std::vector<double> LargestSteps(const Core& core);

// Each variable in turn takes what is cheapest with what earlier ones took.
std::vector<uint32_t> Greedy(const Core& core);

// From `kept`, which keeps all rows, goes over to `other` in parts: what differs and hangs together. The part that saves most for
// what it takes goes first, as long as it saves anything and rows are kept.
std::vector<uint32_t> Mix(const Core& core, const std::vector<uint32_t>& kept,
                          const std::vector<uint32_t>& other);

// Changes one variable at a time until all rows are kept, each time what brings them nearest for its cost. False if nothing does.
bool Repair(const Core& core, const Limit& limit, std::vector<uint32_t>& x);

// Changes one variable at a time as long as that saves something and keeps the rows, which `x` keeps.
void Polish(const Core& core, std::vector<uint32_t>& x);

}  // namespace heddle::search
