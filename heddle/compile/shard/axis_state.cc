#include "heddle/compile/shard/axis_state.h"

#include <algorithm>

namespace heddle::compile {

AxisState StateOn(const Placement& placement, AxisId axis) {
  for (size_t d = 0; d < placement.splits.size(); ++d) {
    if (placement.splits[d].contains(axis)) return {AxisUse::kSplit, d, ReduceOp::kSum};
  }
  for (const Partial& partial : placement.partials) {
    if (partial.axis == axis) return {AxisUse::kPartial, 0, partial.op};
  }
  return {};
}

bool IsOneElement(const Dims& dims) {
  return std::ranges::all_of(dims, [](Dim dim) { return dim == 1; });
}

Axes Joined(Axes a, const Axes& b) {
  for (AxisId axis : b) a.Add(axis);
  return a;
}

std::vector<std::optional<FactorId>> FactorsOfAxes(const DimFactors& dim, const Axes& axes,
                                                   const Factors& factors, const Mesh& mesh) {
  std::vector<std::optional<FactorId>> out(axes.size());
  if (dim.empty()) return out;
  if (dim.size() == 1) {
    std::ranges::fill(out, dim[0]);
    return out;
  }
  size_t at = 0;
  int64_t left = factors.factors[dim[0]].size;
  for (size_t i = 0; i < axes.size(); ++i) {
    while (left == 1 && at + 1 < dim.size()) left = factors.factors[dim[++at]].size;
    int64_t ranks = mesh[axes[i]].size;
    // If an outer axis has no factor, inner ones have none either.
    if (IsSymbol(left) || left % ranks != 0) break;
    left /= ranks;
    out[i] = dim[at];
  }
  return out;
}

DimAxes AxesOfDim(const DimFactors& dim, const std::vector<Axes>& by_factor, const Factors& factors,
                  const Mesh& mesh) {
  DimAxes out;
  bool used_up = true;
  for (size_t k = 0; k < dim.size(); ++k) {
    const Axes& axes = by_factor[dim[k]];
    Dim size = factors.factors[dim[k]].size;
    if (!axes.empty()) {
      // Inside a merged dimension, only contiguous and even parts can be represented.
      bool even = !IsSymbol(size) && size % mesh.Size(axes) == 0;
      if (!used_up || (dim.size() > 1 && !even)) return {.axes = {}, .blocked = dim[k]};
      for (AxisId axis : axes) out.axes.Add(axis);
    }
    used_up = used_up && !IsSymbol(size) && size == mesh.Size(axes);
  }
  return out;
}

std::optional<size_t> DimWith(const TensorFactors& dims, FactorId factor) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (std::ranges::count(dims[d], factor) > 0) return d;
  }
  return std::nullopt;
}

}  // namespace heddle::compile
