// The timelines of the coordinates of a pipeline, simulated together.
#pragma once

#include "heddle/core/analysis/transfers.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

// One timeline per graph, each in the order of its graph. A transfer begins when both of its ends
// are at the heads of their streams. It uses the links of both ends, and is over when both ends
// have moved it. The transfers must have passed CheckTransfers, so no graph waits forever.
std::vector<Timeline> MakeCoupledTimelines(std::span<const SimGraph* const> graphs,
                                           std::span<const TransferEnds> transfers,
                                           const SimOptions& options);

}  // namespace heddle::price
