// Families of ops, and the properties of a family that passes and prices depend on.
#pragma once

#include "heddle/core/ir/op.h"

namespace heddle {

// `other` is the family of ops outside the table of Ops().
#define HEDDLE_FAMILIES(F) \
  F(other)                 \
  F(attention)             \
  F(comm)                  \
  F(create)                \
  F(embedding)             \
  F(index)                 \
  F(loss) F(matmul) F(move) F(norm) F(opaque) F(optimizer) F(pointwise) F(random) F(reduce) F(view)
enum class OpFamily : uint8_t {
#define HEDDLE_FAMILY(name) name,
  HEDDLE_FAMILIES(HEDDLE_FAMILY)
#undef HEDDLE_FAMILY
};
OpFamily FamilyOf(const Op& op);

// Matrix products, grouped ones included, and attention.
inline bool IsMatrixWork(const Op& op) {
  const OpFamily family = FamilyOf(op);
  return family == OpFamily::matmul || family == OpFamily::attention;
}
// Every element of the result depends on one element of each operand.
inline bool IsPointwise(const Op& op) { return FamilyOf(op) == OpFamily::pointwise; }
// Casts and copies.
inline bool IsMove(const Op& op) { return FamilyOf(op) == OpFamily::move; }
// One pass over memory that writes about as much as it reads.
inline bool IsCheap(const Op& op) {
  const OpFamily family = FamilyOf(op);
  return family == OpFamily::pointwise || family == OpFamily::move || family == OpFamily::create;
}
// One pass over memory that may write much less than it reads.
inline bool IsReduction(const Op& op) {
  const OpFamily family = FamilyOf(op);
  return family == OpFamily::reduce || family == OpFamily::norm;
}

}  // namespace heddle
