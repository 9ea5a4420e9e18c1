// `--- equal ranks=4`: a command's input and its output, run on ranks, give the same bits. A global graph, which has no ranks yet,
// runs whole on one device.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

// Why two modules, as text, are not equal on so many ranks; empty if they are. Inputs are small whole numbers, of which sums are exact
// in any order: a graph may be held against what it became on more ranks.
std::string WhyNotEqual(const std::string& before, const std::string& after, int64_t ranks);

}  // namespace heddle
