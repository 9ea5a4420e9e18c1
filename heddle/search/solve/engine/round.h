// Derives assignments that keep the rows from others.
#pragma once

#include <vector>

#include "heddle/search/solve/reduce/core.h"
#include "heddle/search/solve/reduce/work_limit.h"

namespace heddle::search {

// Returns the amounts of an assignment in each row.
std::vector<double> Amounts(const Core& core, const std::vector<uint32_t>& x);
bool KeepsRows(const Core& core, const std::vector<uint32_t>& x);
// Returns the largest step that one variable can make in each row.
std::vector<double> LargestSteps(const Core& core);

// Each variable in turn takes its cheapest choice, given the earlier ones.
std::vector<uint32_t> Greedy(const Core& core);

// Changes `kept`, which keeps all rows, to `other` in connected parts. Parts that save most per
// amount go first, as long as they save anything and rows are kept.
std::vector<uint32_t> Mix(const Core& core, const std::vector<uint32_t>& kept,
                          const std::vector<uint32_t>& other);

// Changes one variable at a time until all rows are kept. Each change is the one that reduces the
// excess most per cost. Returns false if none does.
bool Repair(const Core& core, const WorkLimit& limit, std::vector<uint32_t>& x);

// Changes one variable at a time as long as this saves cost and keeps the rows. `x` must keep the
// rows.
void Polish(const Core& core, std::vector<uint32_t>& x);

}  // namespace heddle::search
