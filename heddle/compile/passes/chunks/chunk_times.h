// What chunks cost where the times of whole calls were measured.
#pragma once

#include <map>
#include <string>

#include "heddle/compile/passes/chunks/region_writer.h"
#include "heddle/price/cost/cost_model.h"

namespace heddle::compile {

// By name. A chunk takes of the measured time what its call takes of the whole call's by the model of the device, which knows how products
// lose efficiency with their sizes. Copies stream at the rate of the measurements. `costs` are those of `before`.
Result<std::map<std::string, Nanos, std::less<>>> TimesOfChunks(
    const Module& module, const Graph& before, const Graph& after, const price::CostModel& model,
    const price::GraphCosts& costs, const RegionWriter& writer);

}  // namespace heddle::compile
