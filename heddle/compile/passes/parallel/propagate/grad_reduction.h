// How gradients of several ranks are combined, by FSDP2's rules.
#pragma once

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/dtype.h"

namespace heddle::compile {

struct GradReduction {
  // Separate divisions before and after the reduction.
  double divide_before = 1.0;
  double divide_behind = 1.0;
  // The collectives either average, or multiply and sum. If the scale is one over the number of
  // scattering ranks, `lower` converts it to their average.
  bool average = false;
  double scale = 1.0;
};

// For a gradient of `dtype` with placement `from`, pending over data-parallel axes, that is stored
// as `store`. Collectives divide f32 and bf16. Other types, such as f16, are divided by about the
// root of the divisor before the reduction and by the rest after it, so that sums do not overflow.
// A gradient without a reduce-scatter is divided before its reduction.
GradReduction ReductionOf(const Plan& plan, DType dtype, const Placement& from,
                          const Placement& store);

// Removes the sums of tensor parallelism: those pending over axes that split neither the batch nor
// the parameter's storage.
Placement WithoutTensorPartials(Placement placement, const Placement& store,
                                const Axes& batch_axes);

}  // namespace heddle::compile
