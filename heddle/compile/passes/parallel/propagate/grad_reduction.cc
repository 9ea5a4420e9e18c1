#include "heddle/compile/passes/parallel/propagate/grad_reduction.h"

#include <algorithm>
#include <cmath>

namespace heddle::compile {
namespace {

bool Splits(const Placement& placement, AxisId axis) {
  return std::ranges::any_of(placement.splits,
                             [&](const Axes& axes) { return axes.contains(axis); });
}

}  // namespace

GradReduction ReductionOf(const Plan& plan, DType dtype, const Placement& from,
                          const Placement& store) {
  int64_t ranks = 1;
  int64_t scattering = 1;
  for (const Partial& partial : from.partials) {
    ranks *= plan.mesh[partial.axis].size;
    if (Splits(store, partial.axis)) scattering *= plan.mesh[partial.axis].size;
  }
  GradReduction out;
  double divisor = plan.average ? static_cast<double>(ranks) : plan.grad_divisor;
  if (divisor == 1.0) return out;
  if (dtype == DType::kF32 || dtype == DType::kBF16) {
    if (plan.average) {
      out.average = true;
    } else if (scattering > 1) {
      out.scale = 1.0 / divisor;
    } else {
      out.divide_before = divisor;
    }
    return out;
  }
  while (std::fmod(divisor, out.divide_before) == 0 &&
         divisor / out.divide_before > out.divide_before)
    out.divide_before *= 2;
  out.divide_behind = divisor / out.divide_before;
  return out;
}

Placement WithoutTensorPartials(Placement placement, const Placement& store,
                                const Axes& batch_axes) {
  std::erase_if(placement.partials, [&](const Partial& partial) {
    return !Splits(store, partial.axis) && !batch_axes.contains(partial.axis);
  });
  return placement;
}

}  // namespace heddle::compile
