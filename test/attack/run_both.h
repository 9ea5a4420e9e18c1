// Runs a graph before and after a command on ranks, and compares the results.
#pragma once

#include <string>

namespace heddle {

// Returns the difference of two modules, given as text, in one line. Empty if they agree, or if the
// first cannot run here. With `exact`, every bit counts; otherwise sums may have another order.
std::string WhatDiffers(const std::string& before, const std::string& after, bool exact);

}  // namespace heddle
