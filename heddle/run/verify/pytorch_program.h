// The Python program of `heddle verify --against=pytorch` (verify/pytorch/*.py).
#pragma once

#include <string>

#include "heddle/core/base/result.h"

namespace heddle::run {

// Writes its files into a folder. The main program is `reference.py`.
Status WritePyTorchProgram(const std::string& folder);

}  // namespace heddle::run
