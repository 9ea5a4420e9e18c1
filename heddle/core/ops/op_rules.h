// Helpers for the family files: the macro that defines an op, and rules that several families
// share.
//
// An entry is `HEDDLE_DEFINE_OP(mm) { .schema = ..., ... };`, or it uses a family's constructor:
// `HEDDLE_DEFINE_OP(relu) Pointwise("aten::relu(Tensor self) -> Tensor", "(f32[4,6])");`. Each op
// also has a line in op_list.def.
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

// `dim` as an index from the front. Fails if it is out of range.
Result<size_t> WrapDim(int64_t dim, size_t rank);
// The `dim` attribute, for an operand of this rank. A scalar counts as having one dimension.
Result<size_t> DimAttr(const OpArgs& args, size_t rank, std::string_view name = "dim");
// Flags of the dimensions in a list attribute. All are set if the list is empty or none.
Result<std::vector<bool>> DimFlags(const OpArgs& args, size_t rank, std::string_view name = "dim");
// Fails unless `over` names axes of the mesh, at least one.
Status CheckOver(const OpArgs& args);
// Fail unless operand `i` has exactly, or at least, `rank` dimensions.
Status CheckRank(const OpArgs& args, size_t i, size_t rank);
Status CheckRankAtLeast(const OpArgs& args, size_t i, size_t rank);
// Fails unless the sizes are equal. `what` names them in the message.
Status CheckSame(const OpArgs& args, std::string_view what, Dim a, Dim b);
// The broadcast shape of operands `first` up to, but not including, `last`.
Result<Dims> Broadcast(const OpArgs& args, size_t first = 0, size_t last = SIZE_MAX);
// The number of elements. Fails if it depends on a symbol or overflows.
Result<int64_t> NumElements(const OpArgs& args, const Dims& dims);
// The size of a dimension after slicing it with the attributes `start`, `end` and `step`.
Result<Dim> SlicedSize(const OpArgs& args, Dim size);
// The type of operand 0 with another shape.
Type WithDims(const OpArgs& args, Dims dims);
// The type of operand 0.
Result<Types> SameType(const OpArgs& args);
// A dimension as text, for messages.
std::string DimText(const OpArgs& args, Dim dim);
std::string DimsText(const OpArgs& args, const Dims& dims);
// The element type of a number in an attribute; kNone if the value is not a number.
DType NumberDType(const AttrValue& value);
// The element type of an arithmetic result, promoted from tensors, scalar tensors, and numbers in
// attributes.
DType PromotedDType(const OpArgs& args, size_t first = 0, size_t last = SIZE_MAX);

// --- Factors

// Whether a cast distributes over sums. A cast to integers truncates and a cast to bool saturates,
// so they do not.
bool CastKeepsSums(DType from, DType to);
// One factor for each dimension of the result. Operands are aligned from the right and may be
// broadcast.
Result<Factors> PointwiseFactors(const OpArgs& args, const Types& results);
// Operand 0 and every result of its rank have one factor per dimension. Flagged dimensions cannot
// be split. Other tensors have no factors.
Factors SameDimsFactors(const OpArgs& args, const Types& results, const std::vector<bool>& whole);
// No dimension can be split: every rank computes the whole op.
Result<Factors> WholeFactors(const OpArgs& args, const Types& results);
// The factors of a reshape: runs of dimensions that merge or split get their common refinement.
Result<Factors> ReshapeFactors(const OpArgs& args, const Types& results);
// For an op with one operand: dimensions, aligned from the right, whose size the result keeps can
// be split. Others cannot.
Result<Factors> UnchangedDimsFactors(const OpArgs& args, const Types& results);
// Adds one factor per dimension of `type`, named `prefix` and the dimension's index.
TensorFactors AddDims(Factors& factors, const Type& type, std::string_view prefix,
                      FactorKind kind = FactorKind::kKeep);

// --- Work

// Bytes of a tensor, with symbols at their bounds.
Bytes BytesOf(const OpArgs& args, const Type& type);
// For ops that only rename or wait.
Work NoWork(const OpArgs& args, const Types& results);
// Reads all operands, writes all results, and does `flops` arithmetic.
Work WorkOf(const OpArgs& args, const Types& results, int64_t flops);
// The product of sizes, with symbols at their bounds. Saturates on overflow.
int64_t BoundedProduct(const OpArgs& args, std::initializer_list<Dim> dims);
int64_t BoundedElements(const OpArgs& args, const Type& type);

}  // namespace heddle
