// Lists the kernels that a step on a GPU launches, in order, as far as the graph determines them.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

struct KernelLaunch {
  // `elements`, `rows`, `norm_weight`, `casts`, `loss`, `index_add`, `squared_norm` and `adamw` are
  // Heddle's kernels; other names are ops.
  std::string name;
  // `elements`, `rows`, `columns`, `lists`, `matmul`, `attention`, `collective`, or `aten`.
  std::string form;
  // Nodes of the arranged graph.
  std::vector<NodeId> nodes;
  // Bytes that a kernel of Heddle's reads and writes; 0 for ops, which state it themselves.
  Bytes bytes;
  // The CUDA C++ of a generated kernel.
  std::string text = {};
};

struct LaunchList {
  Graph graph;
  std::vector<KernelLaunch> launches;
};
// Views and waits launch nothing. A GPU runs a kernel of Heddle's only if its bits are proved;
// otherwise ATen runs the nodes. `copies` as for ArrangeStep.
LaunchList ListLaunches(const Graph& graph,
                        const std::optional<std::set<int64_t>>& copies = std::nullopt);

}  // namespace heddle
