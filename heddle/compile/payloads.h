// Where each parameter, or its gradient, lies in what a launch sends.
#pragma once

#include <string>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// One line for each tensor of a gather of parameters or a reduction of gradients: its offset and length in a rank's part of the
// payload, in bytes, padding included.
std::string FormatPayloads(const Graph& graph);

}  // namespace heddle::compile
