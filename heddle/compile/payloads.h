// The position of each parameter or gradient in the payload of its launch.
#pragma once

#include <string>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// One line per tensor of a gather of parameters or reduction of gradients: its offset and length,
// in bytes and with padding, in one rank's part of the payload.
std::string FormatPayloads(const Graph& graph);

}  // namespace heddle::compile
