// Ways to merge that differ from one way in one bucket: neighbours for a local search.
#pragma once

#include <optional>
#include <vector>

#include "heddle/compile/passes/overlap/buckets/bucket_choice.h"
#include "heddle/core/analysis/equal_layers.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::compile {

// The bucket that compute stands still longest for, by its place in `buckets`; their number if there is none. `merged` is `graph` with
// these buckets, and `timeline` is of it.
size_t MostExposed(const Graph& graph, const Buckets& buckets, const Graph& merged,
                   const price::Timeline& timeline);

// The bucket is launched with fewer of its members. Those that are needed last go with the next bucket of its kind, or by
// themselves.
std::vector<Buckets> WithShorter(const Graph& graph, const Buckets& buckets, size_t bucket);

// Equal layers, which `runs` has, get the same buckets: those of a late layer, where a step runs steadily. None if they have, or there
// are none.
std::optional<Buckets> Repeated(const Graph& graph, const std::vector<LayerRun>& runs,
                                const Buckets& buckets);

}  // namespace heddle::compile
