// The copies of parameters (heddle/core/kernel/weight_copies.h) that the graphs of a run share.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

namespace heddle::run {

struct WeightCopies {
  // The parameters with copies. The graph of the step is compiled first and decides.
  std::optional<std::set<int64_t>> params;
  // By rank of this process, and by parameter. Before a graph runs, each copy is the cast of its
  // parameter. A run with kernels keeps it so; others leave the copies as they are.
  std::vector<std::map<int64_t, at::Tensor>> of_rank;
};

}  // namespace heddle::run
