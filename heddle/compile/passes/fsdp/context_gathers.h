// Gathers of keys and values over context-parallel ranks that backward repeats.
#pragma once

#include <functional>
#include <string_view>

#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// Backward gathers keys and values again. If it also recomputes attention, it gathers them twice:
// the second gather becomes a use of the first. Where `keeps` is true for the scope of attention,
// the result of forward's gather is kept and used instead. Returns the number of kept results.
int64_t ReuseContextGathers(const Graph& graph, const std::function<bool(std::string_view)>& keeps,
                            Rewriter& rewriter);

}  // namespace heddle::compile
