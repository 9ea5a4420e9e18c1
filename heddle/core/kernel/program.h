// Source text of the kernel for a group of nodes.
//
// The text requires kernels/prelude.cu and kernels/elements.cu before it. Equal groups of different
// layers have equal texts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"
#include "heddle/core/kernel/groups.h"

namespace heddle {

struct KernelProgram {
  // The name of the function: `elements` or `rows`.
  std::string name;
  std::string text;
  unsigned grid = 1;
  unsigned block = 1;
  // Arguments, inputs before outputs. Tensors are contiguous and aligned to 16 bytes.
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

// The gradient of a norm's weight, which a separate kernel sums over rows.
struct NormWeightGradient {
  ValueId gradient;
  ValueId input;
  ValueId rstd;
  ValueId result;
  int64_t rows = 0;
  int64_t width = 0;
};
// Nullopt if the group has no gradient of a norm, or if its weight gradient is unused.
std::optional<NormWeightGradient> WeightGradientOf(const Graph& graph, const Uses& uses,
                                                   const KernelGroup& group);

// The results of a group of elements or rows that its kernel stores, and the gradient of a weight
// that it leaves to another kernel.
struct StoredValues {
  std::vector<ValueId> stored;
  std::optional<NormWeightGradient> weight;
};
StoredValues StoredValuesOf(const Graph& graph, const Uses& uses,
                            const std::vector<KernelGroup>& groups, size_t group);

// The program of a group of elements or rows that stores `stored`.
KernelProgram WriteProgram(const Graph& graph, const KernelGroup& group,
                           const std::vector<ValueId>& stored);

// The program of a group, and the gradient of a weight that it leaves to another kernel.
struct GroupProgram {
  KernelProgram program;
  std::optional<NormWeightGradient> weight;
};
GroupProgram WriteGroupProgram(const Graph& graph, const Uses& uses,
                               const std::vector<KernelGroup>& groups, size_t group);

}  // namespace heddle
