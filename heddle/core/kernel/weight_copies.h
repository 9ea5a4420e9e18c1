// Copies of parameters in bf16 that stay from step to step. When the kernel of AdamW updates a
// parameter, it also writes the cast of the new value, so the next step does not cast it.
//
// The step decides which parameters have a copy. Its graphs for other micro-batches and for
// validation read the same copies.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "heddle/core/kernel/groups.h"

namespace heddle {

// The parameter (Input::index) that is this value; nullopt for other values.
std::optional<int64_t> ParamOf(const Graph& graph, ValueId value);

// The casts of parameters to bf16 that a copy can replace: launches of their own, or of lists of
// casts, whose results no node writes to.
std::map<int64_t, std::vector<NodeId>> CastsOfParams(const ArrangedGraph& arranged);

// The same, for parameters that a kernel of AdamW updates after all of these casts.
std::map<int64_t, std::vector<NodeId>> CastsOfUpdatedParams(const ArrangedGraph& step);

// The parameters whose casts do not run.
std::set<int64_t> CopiedParams(const ArrangedGraph& arranged);

}  // namespace heddle
