// Reads study files of PyTorch's overlap scheduler as measured costs: an object with the `nodes` of
// an FX graph, each with its operator, its inputs and its milliseconds.
//
// A node is identified by `source_name`, its variable in the printed graph, which an import keeps.
// A call with several results is identified by its items' names. A node that the printed graph
// lacks, such as a copy of a lazily conjugated tensor, adds its time and a launch to its first
// reader.
//
// `curves` have the times of collectives of other sizes, which buckets need: rows of a table,
// interpolated as AutoParallel does, or PyTorch's formula.
//
// The costs include AutoParallel's timeline rules, with packing of buckets by kernels.
#pragma once

#include "heddle/core/base/json.h"
#include "heddle/price/cost/measured.h"

namespace heddle::price {

// Whether the document has the format of a study.
bool IsScheduleCosts(const JsonDocument& document);
// Column `ms0`: views, items and waits cost nothing.
Result<MeasuredCosts> ReadScheduleCosts(const JsonDocument& document, const std::string& file);

}  // namespace heddle::price
