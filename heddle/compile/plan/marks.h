// Decisions about what backward recomputes, as statements of a plan.
#pragma once

#include <vector>

#include "heddle/compile/plan/decisions.h"
#include "heddle/core/base/result.h"

namespace heddle::compile {

// The marks of a lowered graph: equal layers share a statement. `marks` has an entry for each
// value.
std::vector<PlanMark> StatementsOf(const Graph& graph, const std::vector<Keep>& marks);

// Marks the values that statements are about, unless they have a mark. Fails for a statement that
// matches no value.
Status SetMarks(const std::vector<PlanMark>& statements, Graph& graph);

}  // namespace heddle::compile
