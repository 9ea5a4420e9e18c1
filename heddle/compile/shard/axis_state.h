// The effect of one mesh axis on a tensor, and the factors that the axes of a dimension split.
#pragma once

#include <optional>
#include <vector>

#include "heddle/core/ir/factors.h"
#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"

namespace heddle::compile {

enum class AxisUse : uint8_t { kReplicated, kSplit, kPartial };

// The state of one tensor on one axis.
struct AxisState {
  AxisUse use = AxisUse::kReplicated;
  size_t dim = 0;
  ReduceOp op = ReduceOp::kSum;
  bool operator==(const AxisState&) const = default;
};
AxisState StateOn(const Placement& placement, AxisId axis);

// Whether a tensor of this shape is a single number.
bool IsOneElement(const Dims& dims);

// `a`, then the axes of `b` that it lacks.
Axes Joined(Axes a, const Axes& b);

// The factor that each axis of a dimension splits; nullopt if the axes split a factor unevenly. In
// merged dimensions, axes split the outermost factor until it is used up, then the next one.
std::vector<std::optional<FactorId>> FactorsOfAxes(const DimFactors& dim, const Axes& axes,
                                                   const Factors& factors, const Mesh& mesh);
// The axes of a dimension that result from the axes of its factors; or the factor that has to give
// up its last axis.
struct DimAxes {
  Axes axes = {};
  std::optional<FactorId> blocked = {};
};
DimAxes AxesOfDim(const DimFactors& dim, const std::vector<Axes>& by_factor, const Factors& factors,
                  const Mesh& mesh);

// The dimension with the factor, or nullopt.
std::optional<size_t> DimWith(const TensorFactors& dims, FactorId factor);

}  // namespace heddle::compile
