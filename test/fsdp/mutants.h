// Mistakes that a pass of FSDP could make. Each changes a correct graph into a wrong one.
#pragma once

#include <span>

#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

struct Mutant {
  const char* name;
  void (*apply)(Graph& graph, Rewriter& rewriter);
};
std::span<const Mutant> AllMutants();

}  // namespace heddle
