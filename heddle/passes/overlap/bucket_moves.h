// Ways to merge that differ from one way in one bucket: neighbours for a local search.
#pragma once

#include <vector>

#include "heddle/passes/overlap/bucket_choice.h"
#include "heddle/sim/timeline/timeline.h"

namespace heddle {

// The bucket that compute stands still longest for, by its place in `buckets`; their number if there is none. `merged` is `graph` with
// these buckets, and `timeline` is of it.
size_t MostExposed(const Graph& graph, const Buckets& buckets, const Graph& merged,
                   const Timeline& timeline);

// The bucket is launched with fewer of its members. Those that are needed last go with the next bucket of its kind, or by
// themselves.
std::vector<Buckets> WithShorter(const Graph& graph, const Buckets& buckets, size_t bucket);

// Ways in which equal layers have the same buckets: those of some layer, or of two neighbours, for all.
std::vector<Buckets> WithRepeats(const Graph& graph, const Buckets& buckets);

}  // namespace heddle
