// Costs of the nodes of a graph as studies of PyTorch's overlap scheduler write them: an object with the `nodes` of an FX graph, each with
// its operator, its inputs and its milliseconds.
//
// A node is known by `source_name`, the variable of the graph that was printed, which an import keeps. The cost of a call of several
// results stands with the names of its items. A node that the printed graph does not have (what was traced anew has copies of lazily
// conjugated tensors) costs what its first reader costs more, its launch included.
//
// `curves` give collectives of other sizes, as buckets are: rows of a table, read as AutoParallel reads them, or PyTorch's formula.
#pragma once

#include "heddle/core/base/json.h"
#include "heddle/price/cost/measured.h"

namespace heddle::price {

bool IsScheduleCosts(const JsonDocument& document);
// Column `ms0`: views, items and waits cost nothing.
Result<MeasuredCosts> ReadScheduleCosts(const JsonDocument& document, const std::string& file);

}  // namespace heddle::price
