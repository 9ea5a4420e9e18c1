// Tensors created from attributes only, or with the type of another tensor.
#include <cmath>

#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

Result<Dims> SizeAttr(const OpArgs& args, std::string_view name = "size") {
  Dims dims = args.Ints(name);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 0 && !IsSymbol(dims[d]))
      return Error(Diag::kReshape, "size {} of dimension {} is negative", dims[d], d);
  }
  return dims;
}

Result<Types> SizedShape(const OpArgs& args) {
  HEDDLE_TRY(Dims dims, SizeAttr(args));
  return Types{Type::Tensor(args.DTypeOr("dtype", DType::kF32), std::move(dims))};
}
Result<Types> FullShape(const OpArgs& args) {
  HEDDLE_TRY(Dims dims, SizeAttr(args));
  return Types{
      Type::Tensor(args.DTypeOr("dtype", NumberDType(args.attr("fill_value"))), std::move(dims))};
}
Result<Types> LikeShape(const OpArgs& args) {
  return Types{Type::Tensor(args.DTypeOr("dtype", args.dtype(0)), args.dims(0))};
}
Result<Types> NewShape(const OpArgs& args) {
  HEDDLE_TRY(Dims dims, SizeAttr(args));
  return Types{Type::Tensor(args.DTypeOr("dtype", args.dtype(0)), std::move(dims))};
}
Result<Types> ScalarShape(const OpArgs& args) {
  return Types{Type::Tensor(args.DTypeOr("dtype", DType::kF32), {})};
}

std::optional<double> Number(const AttrValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value); i != nullptr && !IsSymbol(*i))
    return static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  return std::nullopt;
}

Result<Types> ArangeShape(const OpArgs& args) {
  bool has_start = args.op().schema.Find("start") != nullptr;
  bool has_step = args.op().schema.Find("step") != nullptr;
  std::optional<double> start = has_start ? Number(args.attr("start")) : 0.0;
  std::optional<double> step = has_step ? Number(args.attr("step")) : 1.0;
  std::optional<double> end = Number(args.attr("end"));
  if (!start || !step || !end)
    return Error(Diag::kSymbolicSize, "a bound of the range is not a constant");
  double count = std::ceil((*end - *start) / *step);
  if (*step == 0 || !(count >= 0) || count >= 0x1p62) {
    return Error(Diag::kShapeMismatch, "there is no range from {} to {} in steps of {}", *start,
                 *end, *step);
  }
  bool integers = std::holds_alternative<int64_t>(args.attr("end")) &&
                  (!has_start || std::holds_alternative<int64_t>(args.attr("start"))) &&
                  (!has_step || std::holds_alternative<int64_t>(args.attr("step")));
  return Types{Type::Tensor(args.DTypeOr("dtype", integers ? DType::kI64 : DType::kF32),
                            {static_cast<int64_t>(count)})};
}

Result<Types> EyeShape(const OpArgs& args) {
  int64_t n = args.Int("n");
  if (n < 0) return Error(Diag::kReshape, "size {} is negative", n);
  return Types{Type::Tensor(args.DTypeOr("dtype", DType::kF32), {n, n})};
}

// All elements are equal, so any part can be computed directly.
Result<Factors> ConstantFactors(const OpArgs& args, const Types& results) {
  Factors factors;
  for (const Type& operand : args.operands())
    factors.operands.push_back(TensorFactors(operand.rank()));
  factors.results = {AddDims(factors, results[0], "d")};
  for (uint32_t i = 0; i < args.size(); ++i) factors.unread.push_back(i);
  return factors;
}

// Like ConstantFactors, with the operand's shape.
Result<Factors> LikeFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(Factors factors, PointwiseFactors(args, results));
  factors.unread = {0};
  return factors;
}

Work WriteWork(const OpArgs& args, const Types& results) {
  return {{0}, {0}, BytesOf(args, results[0])};
}

// The contents of an empty tensor do not matter, so the op writes nothing.
constexpr OpDef Create(std::string_view schema, ShapeFn shape, FactorsFn factors,
                       std::string_view example) {
  bool empty = schema.find("empty") != std::string_view::npos;
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = factors},
          .work = empty ? NoWork : WriteWork,
          .example = example};
}

// One number, in the shape of the attribute `size`.
constexpr OpDef Constant(std::string_view schema, ShapeFn shape, std::string_view example) {
  OpDef def = Create(schema, shape, ConstantFactors, example);
  def.shape_attr = "size";
  def.constant = true;
  return def;
}

}  // namespace

HEDDLE_DEFINE_OP(full)
Constant(
    "aten::full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor",
    FullShape, "(size=[4,6], fill_value=1.5)");
HEDDLE_DEFINE_OP(zeros)
Constant(
    "aten::zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None) -> Tensor",
    SizedShape, "(size=[4,6], dtype=bf16)");
HEDDLE_DEFINE_OP(ones)
Constant(
    "aten::ones(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None) -> Tensor",
    SizedShape, "(size=[4,6])");
HEDDLE_DEFINE_OP(empty_memory_format)
Constant(
    "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    SizedShape, "(size=[4,6])");
HEDDLE_DEFINE_OP(scalar_tensor)
Create(
    "aten::scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None) -> Tensor",
    ScalarShape, ConstantFactors, "(s=2, dtype=f64)");
HEDDLE_DEFINE_OP(arange)
Create(
    "aten::arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None) -> Tensor",
    ArangeShape, WholeFactors, "(end=7)");
HEDDLE_DEFINE_OP(arange_start)
Create(
    "aten::arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor",
    ArangeShape, WholeFactors, "(start=2, end=7)");
HEDDLE_DEFINE_OP(arange_start_step)
Create(
    "aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, "
    "Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    ArangeShape, WholeFactors, "(start=0, end=7, step=2, dtype=f32)");
HEDDLE_DEFINE_OP(eye)
Create(
    "aten::eye(SymInt n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None) -> Tensor",
    EyeShape, WholeFactors, "(n=4)");
HEDDLE_DEFINE_OP(zeros_like)
Create(
    "aten::zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    LikeShape, LikeFactors, "(f32[4,6])");
HEDDLE_DEFINE_OP(ones_like)
Create(
    "aten::ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    LikeShape, LikeFactors, "(f32[4,6], dtype=bf16)");
HEDDLE_DEFINE_OP(full_like)
Create(
    "aten::full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? "
    "layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> "
    "Tensor",
    LikeShape, LikeFactors, "(f32[4,6], fill_value=2)");
HEDDLE_DEFINE_OP(empty_like)
Create(
    "aten::empty_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    LikeShape, LikeFactors, "(f32[4,6])");
HEDDLE_DEFINE_OP(new_zeros)
Constant(
    "aten::new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor",
    NewShape, "(bf16[2], size=[4,6])");
HEDDLE_DEFINE_OP(new_ones)
Constant(
    "aten::new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor",
    NewShape, "(bf16[2], size=[4,6])");
HEDDLE_DEFINE_OP(new_full)
Constant(
    "aten::new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, "
    "Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    NewShape, "(bf16[2], size=[4,6], fill_value=1)");
HEDDLE_DEFINE_OP(new_empty)
Constant(
    "aten::new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor",
    NewShape, "(bf16[2], size=[4,6])");

}  // namespace heddle
