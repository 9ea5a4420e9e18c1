// What one mesh axis does to a tensor, and which factors the axes of a dimension split.
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

// Which factor each axis of a dimension splits, or nothing where the axes cut a factor unevenly.
// Exact rules for merged dimensions: axes go to the outermost factor until they have used it up, then to the next.
std::vector<std::optional<FactorId>> FactorsOfAxes(const DimFactors& dim, const Axes& axes,
                                                   const Factors& factors, const Mesh& mesh);
// The axes of a dimension whose factors have these axes; or the factor that would have to give its last axis up.
struct DimAxes {
  Axes axes = {};
  std::optional<FactorId> blocked = {};
};
DimAxes AxesOfDim(const DimFactors& dim, const std::vector<Axes>& by_factor, const Factors& factors,
                  const Mesh& mesh);

// Where the tensor has the factor, or nothing.
std::optional<size_t> DimWith(const TensorFactors& dims, FactorId factor);

}  // namespace heddle::compile
