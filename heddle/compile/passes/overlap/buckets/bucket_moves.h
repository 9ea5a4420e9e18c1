// Variations of one bucket: neighbours for a local search.
#pragma once

#include <optional>
#include <vector>

#include "heddle/compile/passes/overlap/buckets/bucket_choice.h"
#include "heddle/core/analysis/equal_layers.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::compile {

// The index in `buckets` of the bucket with the longest exposed time, or their number if there is
// none. `merged` is `graph` with these buckets, and `timeline` is that of `merged`.
size_t MostExposed(const Graph& graph, const Buckets& buckets, const Graph& merged,
                   const price::Timeline& timeline);

// Variations in which the bucket has fewer members. The members needed last move to the next bucket
// of its kind, or are launched separately.
std::vector<Buckets> WithShorter(const Graph& graph, const Buckets& buckets, size_t bucket);

// Gives the equal layers of `runs` the same buckets: those of a late layer, where the step is in a
// steady state. Nullopt if they already have them, or if no layers repeat.
std::optional<Buckets> Repeated(const Graph& graph, const std::vector<LayerRun>& runs,
                                const Buckets& buckets);

}  // namespace heddle::compile
