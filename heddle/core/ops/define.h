// For the family files: how an op is defined, and the rules that several families share.
//
// An entry is `HEDDLE_DEFINE_OP(mm) { .schema = ..., ... };` or, through a family constructor,
// `HEDDLE_DEFINE_OP(relu) Pointwise("aten::relu(Tensor self) -> Tensor", "(f32[4,6])");`, and one line in op_list.def.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "heddle/core/ir/op.h"

#define HEDDLE_DEFINE_OP(ident)      \
  extern const OpDef kOpDef_##ident; \
  constinit const OpDef kOpDef_##ident =

namespace heddle {

// --- Shapes

// `dim` counted from the front, or an error.
Result<size_t> WrapDim(int64_t dim, size_t rank);
// The `dim` attribute, for an operand of this rank. A scalar counts as having one dimension.
Result<size_t> DimAttr(const OpArgs& args, size_t rank, std::string_view name = "dim");
// The dimensions named by a list attribute, as flags; all of them if the list is empty or none.
Result<std::vector<bool>> DimFlags(const OpArgs& args, size_t rank, std::string_view name = "dim");
// Error unless operand `i` has exactly, or at least, `rank` dimensions.
Status CheckRank(const OpArgs& args, size_t i, size_t rank);
Status CheckRankAtLeast(const OpArgs& args, size_t i, size_t rank);
// Error unless two sizes that must agree do.
Status CheckSame(const OpArgs& args, std::string_view what, Dim a, Dim b);
// The shape that all operands from `first` up to `last` stretch to.
Result<Dims> Broadcast(const OpArgs& args, size_t first = 0, size_t last = SIZE_MAX);
// The number of elements, or an error where it depends on a symbol or overflows.
Result<int64_t> NumElements(const OpArgs& args, const Dims& dims);
// `start`, `end` and `step` applied to a dimension of this size: how many positions are left.
Result<Dim> SlicedSize(const OpArgs& args, Dim size);
// The type of operand 0 with another shape.
Type WithDims(const OpArgs& args, Dims dims);
// The type of operand 0.
Result<Types> SameType(const OpArgs& args);
// A dimension for messages.
std::string DimText(const OpArgs& args, Dim dim);
std::string DimsText(const OpArgs& args, const Dims& dims);
// The element type that a number among the attributes stands for; none for what is no number.
DType NumberDType(const AttrValue& value);
// The element type of an arithmetic result: tensors, then scalars that are tensors, then numbers among the attributes.
DType PromotedDType(const OpArgs& args, size_t first = 0, size_t last = SIZE_MAX);

// --- Factors

// Whether a sum can be cast summand by summand: not where fractions are cut off, nor to true and false.
bool CastKeepsSums(DType from, DType to);
// One factor for each dimension of the result; operands are lined up from the right and may be stretched.
Result<Factors> PointwiseFactors(const OpArgs& args, const Types& results);
// Operand 0 and every result of its rank have one factor per dimension; those flagged are whole. Other tensors, none.
Factors SameDimsFactors(const OpArgs& args, const Types& results, const std::vector<bool>& whole);
// Nothing can be split: the op is replicated.
Result<Factors> WholeFactors(const OpArgs& args, const Types& results);
// The factors of a reshape: each run of dimensions that merge or split becomes its common refinement.
Result<Factors> ReshapeFactors(const OpArgs& args, const Types& results);
// Dimensions of the one operand whose size the result keeps, lined up from the right, carry over; the rest is whole.
Result<Factors> UnchangedDimsFactors(const OpArgs& args, const Types& results);
// One fresh factor per dimension of `type`, called `prefix` and the dimension's number.
TensorFactors AddDims(Factors& factors, const Type& type, std::string_view prefix,
                      FactorKind kind = FactorKind::kKeep);

// --- Work

// Bytes of a tensor, symbols at their bounds.
Bytes BytesOf(const OpArgs& args, const Type& type);
// For what only names or waits.
Work NoWork(const OpArgs& args, const Types& results);
// Reads all operands and writes all results; the given amount of arithmetic.
Work WorkOf(const OpArgs& args, const Types& results, int64_t flops);
// The product of sizes, symbols at their bounds; the largest number if it overflows.
int64_t BoundedProduct(const OpArgs& args, std::initializer_list<Dim> dims);
int64_t BoundedElements(const OpArgs& args, const Type& type);

}  // namespace heddle
