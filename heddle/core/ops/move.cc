// Copies, concatenations and insertions.
#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

// --- Concatenation

Result<Types> CatShape(const OpArgs& args) {
  if (args.size() == 0)
    return Error(Diag::kOperandCount, "the list of tensors to concatenate is empty");
  DType dtype = PromotedDType(args);
  // ATen accepts an empty vector next to any shape, for historical reasons.
  size_t first = 0;
  auto skipped = [&](size_t i) { return args.dims(i) == Dims{0}; };
  while (first + 1 < args.size() && skipped(first)) ++first;
  Dims dims = args.dims(first);
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, first, 1));
  HEDDLE_TRY(size_t dim, DimAttr(args, dims.size()));
  for (size_t i = first + 1; i < args.size(); ++i) {
    if (skipped(i)) continue;
    HEDDLE_RETURN_IF_ERROR(CheckRank(args, i, dims.size()));
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d == dim) {
        HEDDLE_TRY(int64_t a, NumElements(args, {dims[d]}));
        HEDDLE_TRY(int64_t b, NumElements(args, {args.dims(i)[d]}));
        if (__builtin_add_overflow(a, b, &dims[d]))
          return Error(Diag::kSizeOverflow, "the size of dimension {} exceeds 2^63 - 1", d);
      } else {
        HEDDLE_RETURN_IF_ERROR(CheckSame(args,
                                         fmt::format("operand {} differs in dimension {}", i, d),
                                         args.dims(i)[d], dims[d]));
      }
    }
  }
  return Types{Type::Tensor(dtype, std::move(dims))};
}

Result<Factors> CatFactors(const OpArgs& args, const Types& results) {
  size_t rank = results[0].rank();
  HEDDLE_TRY(size_t dim, DimAttr(args, rank));
  Factors factors;
  TensorFactors all = AddDims(factors, results[0], "d");
  factors.factors[dim].kind = FactorKind::kWhole;
  std::vector<uint32_t> together;
  for (uint32_t i = 0; i < args.size(); ++i) {
    TensorFactors dims(args[i].rank());
    for (size_t d = 0; d < dims.size() && dims.size() == rank; ++d) {
      dims[d] =
          d == dim
              ? DimFactors{factors.Add(fmt::format("n{}", i), args.dims(i)[d], FactorKind::kWhole)}
              : all[d];
    }
    factors.operands.push_back(std::move(dims));
    together.push_back(i);
  }
  factors.results = {all};
  factors.linear.push_back(std::move(together));
  return factors;
}

Result<Types> StackShape(const OpArgs& args) {
  if (args.size() == 0) return Error(Diag::kOperandCount, "the list of tensors to stack is empty");
  for (size_t i = 1; i < args.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(CheckRank(args, i, args[0].rank()));
    for (size_t d = 0; d < args[0].rank(); ++d) {
      HEDDLE_RETURN_IF_ERROR(CheckSame(args,
                                       fmt::format("operand {} differs in dimension {}", i, d),
                                       args.dims(i)[d], args.dims(0)[d]));
    }
  }
  Dims dims = args.dims(0);
  HEDDLE_TRY(size_t dim, WrapDim(args.Int("dim"), dims.size() + 1));
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(dim), static_cast<Dim>(args.size()));
  return Types{Type::Tensor(PromotedDType(args), std::move(dims))};
}

Result<Factors> StackFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(size_t dim, WrapDim(args.Int("dim"), results[0].rank()));
  Factors factors;
  TensorFactors all = AddDims(factors, results[0], "d");
  factors.factors[dim].kind = FactorKind::kWhole;
  TensorFactors item = all;
  item.erase(item.begin() + static_cast<ptrdiff_t>(dim));
  factors.operands.assign(args.size(), item);
  factors.results = {all};
  std::vector<uint32_t> together;
  for (uint32_t i = 0; i < args.size(); ++i) together.push_back(i);
  factors.linear.push_back(std::move(together));
  return factors;
}

// --- Gradients of concatenation, and insertion of a part

Result<Types> InputSizesShape(const OpArgs& args) {
  Dims dims = args.Ints("input_sizes");
  HEDDLE_TRY(size_t dim, DimAttr(args, dims.size()));
  if (dims.empty()) return Error(Diag::kRank, "`input_sizes` is empty");
  Dims part = dims;
  if (args.op().schema.Find("step") != nullptr) {
    HEDDLE_TRY(part[dim], SlicedSize(args, dims[dim]));
  } else {
    part.erase(part.begin() + static_cast<ptrdiff_t>(dim));
  }
  if (part != args.dims(0)) {
    return Error(Diag::kShapeMismatch, "the gradient is {}, but its part is {}",
                 DimsText(args, args.dims(0)), DimsText(args, part));
  }
  return Types{WithDims(args, std::move(dims))};
}

// The result has the whole dimension `dim`; the operand has a part.
Result<Factors> InsertFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(size_t dim, DimAttr(args, results[0].rank()));
  Factors factors;
  TensorFactors all = AddDims(factors, results[0], "d");
  factors.factors[dim].kind = FactorKind::kWhole;
  for (const Type& operand : args.operands()) {
    TensorFactors dims = all;
    if (operand.rank() < results[0].rank()) {
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(dim));
    } else if (operand.dims[dim] != results[0].dims[dim]) {
      dims[dim] = {factors.Add("n", operand.dims[dim], FactorKind::kWhole)};
    }
    factors.operands.push_back(std::move(dims));
  }
  factors.results = {all};
  // The inserted part is cast to the element type of the other tensor.
  std::vector<uint32_t> together;
  for (uint32_t i = 0; i < args.size(); ++i) together.push_back(i);
  if (CastKeepsSums(args.dtype(args.size() - 1), results[0].dtype))
    factors.linear.push_back(std::move(together));
  return factors;
}

Result<Types> InsertShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  Dims part = args.dims(0);
  HEDDLE_TRY(size_t dim, DimAttr(args, part.size()));
  if (args.op().schema.Find("step") != nullptr) {
    HEDDLE_TRY(part[dim], SlicedSize(args, part[dim]));
  } else {
    part.erase(part.begin() + static_cast<ptrdiff_t>(dim));
  }
  if (part != args.dims(1)) {
    return Error(Diag::kShapeMismatch, "operand 1 is {}, but the part that it replaces is {}",
                 DimsText(args, args.dims(1)), DimsText(args, part));
  }
  return Types{args[0]};
}

Result<Types> PadShape(const OpArgs& args) {
  const std::vector<int64_t>& pad = args.Ints("pad");
  Dims dims = args.dims(0);
  if (pad.size() % 2 != 0 || pad.size() / 2 > dims.size()) {
    return Error(Diag::kShapeMismatch, "`pad` has length {}, the tensor has {}", pad.size(),
                 Counted(dims.size(), "dimension"));
  }
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    Dim& size = dims[dims.size() - 1 - i];
    if (pad[2 * i] == 0 && pad[2 * i + 1] == 0) continue;
    HEDDLE_TRY(int64_t padded, NumElements(args, {size}));
    bool overflow = __builtin_add_overflow(padded, pad[2 * i], &padded) ||
                    __builtin_add_overflow(padded, pad[2 * i + 1], &padded);
    if (overflow || padded < 0)
      return Error(Diag::kShapeMismatch,
                   "padding by {} and {} makes a size of {} negative, or exceed 2^63 - 1",
                   pad[2 * i], pad[2 * i + 1], DimText(args, size));
    size = padded;
  }
  return Types{WithDims(args, std::move(dims))};
}

// Padding with zeros is linear. With another value, every rank would add it to a partial sum.
Result<Factors> PadFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(Factors factors, UnchangedDimsFactors(args, results));
  // Padding one side and cutting the other keeps the size, but shifts all elements.
  const std::vector<int64_t>& pad = args.Ints("pad");
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    bool moves = pad[2 * i] != 0 || pad[2 * i + 1] != 0;
    if (moves) factors.factors[args[0].rank() - 1 - i].kind = FactorKind::kWhole;
  }
  const AttrValue& value = args.attr("value");
  bool zero = SameValue(value, int64_t{0}) || SameValue(value, 0.0) || SameValue(value, false);
  if (zero) AddLinear(factors, "0");
  return factors;
}

Result<Types> RepeatShape(const OpArgs& args) {
  Dims dims = args.Ints("repeats");
  const Dims& from = args.dims(0);
  if (dims.size() < from.size())
    return Error(Diag::kRank, "`repeats` has length {}, the tensor has {}", dims.size(),
                 Counted(from.size(), "dimension"));
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 0)
      return Error(Diag::kReshape, "repeat {} of dimension {} is negative", dims[d], d);
    if (d < dims.size() - from.size() || dims[d] == 1) {
      if (d >= dims.size() - from.size()) dims[d] = from[d - (dims.size() - from.size())];
      continue;
    }
    HEDDLE_TRY(dims[d], NumElements(args, {dims[d], from[d - (dims.size() - from.size())]}));
  }
  return Types{WithDims(args, std::move(dims))};
}

Result<Factors> LastTwoWhole(const OpArgs& args, const Types& results) {
  std::vector<bool> whole(args[0].rank());
  for (size_t d = 0; d < whole.size(); ++d) whole[d] = d + 2 >= whole.size();
  return SameDimsFactors(args, results, whole);
}
Result<Types> TriangleShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 2));
  return Types{args[0]};
}
Result<Types> ListedDimsShape(const OpArgs& args) {
  HEDDLE_TRY(std::vector<bool> flags, DimFlags(args, args[0].rank(), "dims"));
  return Types{args[0]};
}
Result<Factors> ListedDimsWhole(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(std::vector<bool> flags, DimFlags(args, args[0].rank(), "dims"));
  return SameDimsFactors(args, results, flags);
}

Result<Types> ToCopyShape(const OpArgs& args) {
  Type type = args[0];
  type.dtype = args.DTypeOr("dtype", type.dtype);
  return Types{std::move(type)};
}

// Casts keep sums, up to rounding, unless they truncate.
Result<Factors> CastFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(Factors factors, PointwiseFactors(args, results));
  if (CastKeepsSums(args.dtype(0), results[0].dtype)) factors.linear.push_back({0});
  return factors;
}

constexpr OpDef Move(std::string_view schema, ShapeFn shape, FactorsFn factors,
                     std::string_view linear, std::string_view example,
                     std::string_view shape_attr = "") {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = factors, .linear = linear},
          .shape_attr = shape_attr,
          .example = example};
}

}  // namespace

HEDDLE_DEFINE_OP(clone)
Move("aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", SameType,
     PointwiseFactors, "0", "(f32[4,6], memory_format=contiguous)");
HEDDLE_DEFINE_OP(lift_fresh_copy)
Move("aten::lift_fresh_copy(Tensor self) -> Tensor", SameType, PointwiseFactors, "0", "(f32[4,6])");
HEDDLE_DEFINE_OP(_to_copy)
Move(
    "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? "
    "memory_format=None) -> Tensor",
    ToCopyShape, CastFactors, "", "(f32[4,6], dtype=bf16)");
HEDDLE_DEFINE_OP(convert_element_type)
Move("prims::convert_element_type(Tensor a, ScalarType dtype) -> Tensor", ToCopyShape, CastFactors,
     "", "(f32[4,6], dtype=bf16)");
HEDDLE_DEFINE_OP(cat)
Move("aten::cat(Tensor[] tensors, int dim=0) -> Tensor", CatShape, CatFactors, "",
     "([f32[4,2], f32[4,3]], dim=1)");
HEDDLE_DEFINE_OP(stack)
Move("aten::stack(Tensor[] tensors, int dim=0) -> Tensor", StackShape, StackFactors, "",
     "([f32[4,6], f32[4,6], f32[4,6]], dim=1)");
HEDDLE_DEFINE_OP(select_backward)
Move(
    "aten::select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> "
    "Tensor",
    InputSizesShape, InsertFactors, "", "(f32[4,6], input_sizes=[4,3,6], dim=1, index=2)",
    "input_sizes");
HEDDLE_DEFINE_OP(slice_backward)
Move(
    "aten::slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt "
    "end, SymInt step) -> Tensor",
    InputSizesShape, InsertFactors, "",
    "(f32[4,2], input_sizes=[4,6], dim=1, start=1, end=3, step=1)", "input_sizes");
HEDDLE_DEFINE_OP(slice_scatter)
Move(
    "aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, "
    "SymInt step=1) -> Tensor",
    InsertShape, InsertFactors, "", "(f32[4,6], f32[4,2], dim=1, start=1, end=3)");
HEDDLE_DEFINE_OP(select_scatter)
Move("aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor", InsertShape,
     InsertFactors, "", "(f32[4,6], f32[4], dim=1, index=2)");
HEDDLE_DEFINE_OP(constant_pad_nd)
Move("aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", PadShape,
     PadFactors, "", "(f32[4,6], pad=[1,2])");
HEDDLE_DEFINE_OP(repeat)
Move("aten::repeat(Tensor self, SymInt[] repeats) -> Tensor", RepeatShape, UnchangedDimsFactors,
     "0", "(f32[4,6], repeats=[2,1,3])");
HEDDLE_DEFINE_OP(flip)
Move("aten::flip(Tensor self, int[] dims) -> Tensor", ListedDimsShape, ListedDimsWhole, "0",
     "(f32[4,6], dims=[1])");
HEDDLE_DEFINE_OP(roll)
Move("aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", ListedDimsShape,
     ListedDimsWhole, "0", "(f32[4,6], shifts=[2], dims=[1])");
HEDDLE_DEFINE_OP(tril)
Move("aten::tril(Tensor self, SymInt diagonal=0) -> Tensor", TriangleShape, LastTwoWhole, "0",
     "(f32[2,4,6])");
HEDDLE_DEFINE_OP(triu)
Move("aten::triu(Tensor self, SymInt diagonal=0) -> Tensor", TriangleShape, LastTwoWhole, "0",
     "(f32[2,4,6], diagonal=1)");

}  // namespace heddle
