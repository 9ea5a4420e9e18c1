// `--- equal ranks=4`: checks that a command's input and output give the same bits on ranks. A
// global graph, which has no ranks yet, runs on one device.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

// Returns the difference between two modules, given as text, on this number of ranks; empty if they
// agree. Inputs are small whole numbers, whose sums are exact in any order, so that a graph can be
// compared with its version on more ranks.
std::string WhyNotEqual(const std::string& before, const std::string& after, int64_t ranks);

}  // namespace heddle
