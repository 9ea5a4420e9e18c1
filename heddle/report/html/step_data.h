// A simulated step as the data that a report's page shows: JSON of columns, so that 10,000 nodes are a few hundred KiB.
//
// Nodes stand in the order of the schedule. Texts are numbers of `strings`. Times are nanoseconds, sizes bytes. Columns that say
// so hold differences to the entry before.
#pragma once

#include <span>
#include <string>

#include "heddle/compile/manager/manager.h"
#include "heddle/report/comparison.h"

namespace heddle {

// Text of any bytes as JSON that can stand within a script element of a page: only ASCII, and no `<`.
std::string PageQuoted(std::string_view text);

// `passes`: what made the step, as far as it is known.
std::string FormatStepData(const SimulatedStep& step, std::span<const compile::PassRecord> passes);

}  // namespace heddle
