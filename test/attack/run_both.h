// A graph before and after a command, run on ranks and compared.
#pragma once

#include <string>

namespace heddle {

// What differs between two modules, as text, one line; empty if nothing does, or if the first cannot be run here. With `exact` every bit
// counts; without it, sums may be in another order.
std::string WhatDiffers(const std::string& before, const std::string& after, bool exact);

}  // namespace heddle
