// Times of chunks of calls whose whole times were measured.
#pragma once

#include <map>
#include <string>

#include "heddle/compile/passes/chunks/region_writer.h"
#include "heddle/price/cost/cost_model.h"

namespace heddle::compile {

// Times by name. A chunk's share of the measured time is its share in the device model, which
// includes the loss of efficiency of small products. Copies stream at the measured rate. `costs`
// must be those of `before`.
Result<std::map<std::string, Nanos, std::less<>>> TimesOfChunks(
    const Module& module, const Graph& before, const Graph& after, const price::CostModel& model,
    const price::GraphCosts& costs, const RegionWriter& writer);

}  // namespace heddle::compile
