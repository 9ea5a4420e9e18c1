// The kernels that a step on a GPU launches, in order, as far as the graph decides them.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

struct KernelLaunch {
  // `elements`, `rows`, `norm_weight`, `casts`, `loss`, `squared_norm` and `adamw` are Heddle's;
  // others are ops.
  std::string name;
  // `elements`, `rows`, `columns`, `lists`, `matmul`, `attention`, `collective`, or `aten`.
  std::string form;
  // In the arranged graph.
  std::vector<NodeId> nodes;
  // Read and written by a kernel of Heddle's; 0 for others, whose op states it.
  Bytes bytes;
  // The CUDA C++ of a generated kernel.
  std::string text = {};
};

struct LaunchList {
  Graph graph;
  std::vector<KernelLaunch> launches;
};
// Views and waits launch nothing. A GPU runs a kernel of Heddle's only if it proves its bits;
// otherwise ATen runs the nodes.
LaunchList ListLaunches(const Graph& graph);

}  // namespace heddle::run
