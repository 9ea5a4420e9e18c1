// Additions of rows to rows that one kernel of Heddle's computes.
#pragma once

#include <optional>

#include "heddle/core/ir/graph.h"

namespace heddle {

struct IndexAddRun {
  ValueId self;
  ValueId index;
  ValueId source;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t sources = 0;
  DType dtype = DType::kF32;
  // `self` is zero, so the kernel does not read it.
  bool to_zero = false;
};
// Nullopt for other nodes, and for types and sizes that the kernel does not support: other
// dimensions than the first, rows that are not whole vectors, and far more sources than rows.
std::optional<IndexAddRun> FindIndexAddRun(const Graph& graph, NodeId node);

}  // namespace heddle
