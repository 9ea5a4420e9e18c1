// How the gradients of ranks combine: FSDP2's rules.
#pragma once

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/dtype.h"

namespace heddle::compile {

struct GradReduction {
  // Divisions of their own, in front of the reduction and behind it.
  double divide_before = 1.0;
  double divide_behind = 1.0;
  // What the collectives do: sum and divide by their ranks, or multiply and sum. If the scale is one over the ranks that scatter,
  // `lower` makes it their average.
  bool average = false;
  double scale = 1.0;
};

// For a gradient of `dtype` that lies as `from`, pending over data-parallel axes, and is stored as `store`. The collectives divide
// f32 and bf16. Other types, f16 above all, are divided by about the root of the divisor in front and by the rest behind, so
// that sums do not overflow. A gradient that no reduce-scatter carries is divided in front.
GradReduction ReductionOf(const Plan& plan, DType dtype, const Placement& from,
                          const Placement& store);

// Without the sums of tensor parallelism: those pending over axes that split neither the batch nor the parameter's storage.
Placement WithoutTensorPartials(Placement placement, const Placement& store,
                                const Axes& batch_axes);

}  // namespace heddle::compile
