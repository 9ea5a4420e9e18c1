// Elementwise ops: arithmetic, activations, comparisons, choice.
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

Result<Types> Shaped(const OpArgs& args, DType dtype) {
  HEDDLE_TRY(Dims dims, Broadcast(args));
  return Types{Type::Tensor(dtype, std::move(dims))};
}

Result<Types> PromotedShape(const OpArgs& args) { return Shaped(args, PromotedDType(args)); }

// Integers become f32, as in division and transcendental functions.
Result<Types> FloatShape(const OpArgs& args) {
  DType dtype = PromotedDType(args);
  return Shaped(args, IsInteger(dtype) ? DType::kF32 : dtype);
}

Result<Types> BoolShape(const OpArgs& args) { return Shaped(args, DType::kBool); }

// The absolute value of a complex number is real.
Result<Types> AbsShape(const OpArgs& args) { return Shaped(args, ToReal(args.dtype(0))); }

// Operand 0 determines the element type and the shape.
Result<Types> LikeFirst(const OpArgs& args) {
  HEDDLE_TRY(Dims dims, Broadcast(args));
  if (dims != args.dims(0)) {
    return Error(Diag::kShapeMismatch, "operand 0 is {}, but the other operands broadcast it to {}",
                 DimsText(args, args.dims(0)), DimsText(args, dims));
  }
  return Types{Type::Tensor(args.dtype(0), std::move(dims))};
}

// The operands after the condition or mask determine the element type.
Result<Types> WhereShape(const OpArgs& args) { return Shaped(args, PromotedDType(args, 1)); }
Result<Types> MaskedFillShape(const OpArgs& args) { return Shaped(args, args.dtype(0)); }

Result<Types> ComplexShape(const OpArgs& args) {
  return Shaped(args, ToComplex(Promote(args.dtype(0), args.dtype(1))));
}

// Division that rounds keeps integers; `rounding_mode=none` is true division.
Result<Types> DivModeShape(const OpArgs& args) {
  return args.IsNone("rounding_mode") ? FloatShape(args) : PromotedShape(args);
}

// The last operand is cast to the element type of the others.
Result<Factors> CastLastFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(Factors factors, PointwiseFactors(args, results));
  auto last = static_cast<uint32_t>(args.size() - 1);
  if (!CastKeepsSums(args.dtype(last), results[0].dtype)) return factors;
  // If the op overwrites all of operand 0, its values do not matter.
  bool fills_part = args.op().schema.Find("mask") != nullptr;
  factors.linear.push_back(fills_part ? std::vector<uint32_t>{0, last}
                                      : std::vector<uint32_t>{last});
  return factors;
}

constexpr OpDef Make(std::string_view schema, ShapeFn shape, std::string_view example,
                     std::string_view linear) {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = PointwiseFactors, .linear = linear},
          .example = example};
}
constexpr OpDef Pointwise(std::string_view schema, std::string_view example,
                          std::string_view linear = "") {
  return Make(schema, PromotedShape, example, linear);
}
constexpr OpDef FloatPointwise(std::string_view schema, std::string_view example,
                               std::string_view linear = "") {
  return Make(schema, FloatShape, example, linear);
}
constexpr OpDef Compare(std::string_view schema, std::string_view example) {
  return Make(schema, BoolShape, example, "");
}
constexpr OpDef CastLast(std::string_view schema, ShapeFn shape, std::string_view example) {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = CastLastFactors},
          .example = example};
}

}  // namespace

// Arithmetic
HEDDLE_DEFINE_OP(add_Tensor)
Pointwise("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
          "(f32[4,6], f32[6])", "0+1");
HEDDLE_DEFINE_OP(add_Scalar)
Pointwise("aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
          "(bf16[4,6], other=2.5)");
HEDDLE_DEFINE_OP(sub_Tensor)
Pointwise("aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
          "(f32[4,6], f32[4,1], alpha=2)", "0+1");
HEDDLE_DEFINE_OP(sub_Scalar)
Pointwise("aten::sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
          "(i64[4,6], other=2)");
HEDDLE_DEFINE_OP(rsub_Scalar)
Pointwise("aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
          "(f32[4,6], other=1)");
HEDDLE_DEFINE_OP(mul_Tensor)
Pointwise("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", "(c64[4,6], c64[1,6])", "0|1");
HEDDLE_DEFINE_OP(mul_Scalar)
Pointwise("aten::mul.Scalar(Tensor self, Scalar other) -> Tensor", "(i64[4,6], other=0.5)", "0");
HEDDLE_DEFINE_OP(div_Tensor)
FloatPointwise("aten::div.Tensor(Tensor self, Tensor other) -> Tensor", "(i64[4,6], i64[6])", "0");
HEDDLE_DEFINE_OP(div_Scalar)
FloatPointwise("aten::div.Scalar(Tensor self, Scalar other) -> Tensor", "(f32[4,6], other=3)", "0");
HEDDLE_DEFINE_OP(div_Tensor_mode)
Make("aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
     DivModeShape, "(f32[4,6], f32[4,6], rounding_mode=\"floor\")", "");
HEDDLE_DEFINE_OP(div_Scalar_mode)
Make("aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
     DivModeShape, "(i64[4,6], other=2, rounding_mode=\"trunc\")", "");
HEDDLE_DEFINE_OP(floor_divide)
Pointwise("aten::floor_divide(Tensor self, Tensor other) -> Tensor", "(f32[4,6], f32[4,6])");
HEDDLE_DEFINE_OP(remainder_Scalar)
Pointwise("aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor", "(i64[4,6], other=3)");
HEDDLE_DEFINE_OP(remainder_Tensor)
Pointwise("aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor", "(f32[4,6], f32[4,6])");
HEDDLE_DEFINE_OP(neg) Pointwise("aten::neg(Tensor self) -> Tensor", "(f32[4,6])", "0");
HEDDLE_DEFINE_OP(abs) Make("aten::abs(Tensor self) -> Tensor", AbsShape, "(c64[4,6])", "");
HEDDLE_DEFINE_OP(sign) Pointwise("aten::sign(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(sgn) Pointwise("aten::sgn(Tensor self) -> Tensor", "(c64[4,6])");
HEDDLE_DEFINE_OP(pow_Tensor_Scalar)
Pointwise("aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
          "(f32[4,6], exponent=2)");
HEDDLE_DEFINE_OP(pow_Tensor_Tensor)
Pointwise("aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
          "(f32[4,6], f32[4,6])");
HEDDLE_DEFINE_OP(pow_Scalar)
Pointwise("aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor", "(f32[4,6], self=2.0)");
HEDDLE_DEFINE_OP(addcmul)
Pointwise("aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
          "(f32[4,6], f32[4,6], f32[4,6], value=0.5)", "0+1|0+2");
HEDDLE_DEFINE_OP(addcdiv)
Pointwise("aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
          "(f32[4,6], f32[4,6], f32[4,6])", "0+1");
HEDDLE_DEFINE_OP(lerp_Scalar)
Pointwise("aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor",
          "(f32[4,6], f32[4,6], weight=0.25)", "0+1");
HEDDLE_DEFINE_OP(lerp_Tensor)
Pointwise("aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
          "(f32[4,6], f32[4,6], f32[4,6])", "0+1");
HEDDLE_DEFINE_OP(polar)
Make("aten::polar(Tensor abs, Tensor angle) -> Tensor", ComplexShape, "(f32[4,6], f32[4,6])", "0");
HEDDLE_DEFINE_OP(complex)
Make("aten::complex(Tensor real, Tensor imag) -> Tensor", ComplexShape, "(f32[4,6], f32[4,6])",
     "0+1");
HEDDLE_DEFINE_OP(_conj_physical)
Pointwise("aten::_conj_physical(Tensor self) -> Tensor", "(c64[4,6])", "0");

// Functions of one number
HEDDLE_DEFINE_OP(exp) FloatPointwise("aten::exp(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(expm1) FloatPointwise("aten::expm1(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(log) FloatPointwise("aten::log(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(log1p) FloatPointwise("aten::log1p(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(log2) FloatPointwise("aten::log2(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(sqrt) FloatPointwise("aten::sqrt(Tensor self) -> Tensor", "(i64[4,6])");
HEDDLE_DEFINE_OP(rsqrt) FloatPointwise("aten::rsqrt(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(reciprocal)
FloatPointwise("aten::reciprocal(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(sin) FloatPointwise("aten::sin(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(cos) FloatPointwise("aten::cos(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(tanh) FloatPointwise("aten::tanh(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(erf) FloatPointwise("aten::erf(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(sigmoid) FloatPointwise("aten::sigmoid(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(floor) Pointwise("aten::floor(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(ceil) Pointwise("aten::ceil(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(round) Pointwise("aten::round(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(trunc) Pointwise("aten::trunc(Tensor self) -> Tensor", "(f32[4,6])");

// Activations and their derivatives
HEDDLE_DEFINE_OP(silu) Pointwise("aten::silu(Tensor self) -> Tensor", "(bf16[4,6])");
HEDDLE_DEFINE_OP(silu_backward)
Pointwise("aten::silu_backward(Tensor grad_output, Tensor self) -> Tensor", "(f32[4,6], f32[4,6])",
          "0");
HEDDLE_DEFINE_OP(gelu)
Pointwise("aten::gelu(Tensor self, *, str approximate=\"none\") -> Tensor",
          "(f32[4,6], approximate=\"tanh\")");
HEDDLE_DEFINE_OP(gelu_backward)
Pointwise(
    "aten::gelu_backward(Tensor grad_output, Tensor self, *, str approximate=\"none\") -> Tensor",
    "(f32[4,6], f32[4,6])", "0");
HEDDLE_DEFINE_OP(relu) Pointwise("aten::relu(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(threshold_backward)
Pointwise("aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
          "(f32[4,6], f32[4,6], threshold=0)", "0");
HEDDLE_DEFINE_OP(leaky_relu)
Pointwise("aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(sigmoid_backward)
Pointwise("aten::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor",
          "(f32[4,6], f32[4,6])", "0");
HEDDLE_DEFINE_OP(tanh_backward)
Pointwise("aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor",
          "(f32[4,6], f32[4,6])", "0");

// Limits
HEDDLE_DEFINE_OP(clamp)
Pointwise("aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
          "(f32[4,6], min=-1, max=1.5)");
HEDDLE_DEFINE_OP(clamp_Tensor)
Pointwise("aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
          "(f32[4,6], min=f32[6])");
HEDDLE_DEFINE_OP(clamp_min)
Pointwise("aten::clamp_min(Tensor self, Scalar min) -> Tensor", "(f32[4,6], min=0)");
HEDDLE_DEFINE_OP(clamp_max)
Pointwise("aten::clamp_max(Tensor self, Scalar max) -> Tensor", "(f32[4,6], max=0)");
HEDDLE_DEFINE_OP(maximum)
Pointwise("aten::maximum(Tensor self, Tensor other) -> Tensor", "(f32[4,6], f32[4,6])");
HEDDLE_DEFINE_OP(minimum)
Pointwise("aten::minimum(Tensor self, Tensor other) -> Tensor", "(f32[4,6], f32[4,6])");

// Comparisons and logic
HEDDLE_DEFINE_OP(eq_Scalar)
Compare("aten::eq.Scalar(Tensor self, Scalar other) -> Tensor", "(i64[4,6], other=2)");
HEDDLE_DEFINE_OP(eq_Tensor)
Compare("aten::eq.Tensor(Tensor self, Tensor other) -> Tensor", "(i64[4,6], i64[6])");
HEDDLE_DEFINE_OP(ne_Scalar)
Compare("aten::ne.Scalar(Tensor self, Scalar other) -> Tensor", "(i64[4,6], other=2)");
HEDDLE_DEFINE_OP(ne_Tensor)
Compare("aten::ne.Tensor(Tensor self, Tensor other) -> Tensor", "(i64[4,6], i64[4,6])");
HEDDLE_DEFINE_OP(lt_Scalar)
Compare("aten::lt.Scalar(Tensor self, Scalar other) -> Tensor", "(f32[4,6], other=0.5)");
HEDDLE_DEFINE_OP(lt_Tensor)
Compare("aten::lt.Tensor(Tensor self, Tensor other) -> Tensor", "(f32[4,6], f32[4,6])");
HEDDLE_DEFINE_OP(le_Scalar)
Compare("aten::le.Scalar(Tensor self, Scalar other) -> Tensor", "(f32[4,6], other=0.5)");
HEDDLE_DEFINE_OP(le_Tensor)
Compare("aten::le.Tensor(Tensor self, Tensor other) -> Tensor", "(f32[4,6], f32[4,6])");
HEDDLE_DEFINE_OP(gt_Scalar)
Compare("aten::gt.Scalar(Tensor self, Scalar other) -> Tensor", "(f32[4,6], other=0.5)");
HEDDLE_DEFINE_OP(gt_Tensor)
Compare("aten::gt.Tensor(Tensor self, Tensor other) -> Tensor", "(f32[4,6], f32[4,6])");
HEDDLE_DEFINE_OP(ge_Scalar)
Compare("aten::ge.Scalar(Tensor self, Scalar other) -> Tensor", "(f32[4,6], other=0.5)");
HEDDLE_DEFINE_OP(ge_Tensor)
Compare("aten::ge.Tensor(Tensor self, Tensor other) -> Tensor", "(f32[4,6], f32[4,6])");
HEDDLE_DEFINE_OP(isnan) Compare("aten::isnan(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(isinf) Compare("aten::isinf(Tensor self) -> Tensor", "(f32[4,6])");
HEDDLE_DEFINE_OP(logical_and)
Compare("aten::logical_and(Tensor self, Tensor other) -> Tensor", "(bool[4,6], bool[4,6])");
HEDDLE_DEFINE_OP(logical_or)
Compare("aten::logical_or(Tensor self, Tensor other) -> Tensor", "(bool[4,6], bool[4,6])");
HEDDLE_DEFINE_OP(logical_xor)
Compare("aten::logical_xor(Tensor self, Tensor other) -> Tensor", "(bool[4,6], bool[4,6])");
HEDDLE_DEFINE_OP(logical_not) Compare("aten::logical_not(Tensor self) -> Tensor", "(bool[4,6])");
HEDDLE_DEFINE_OP(bitwise_and_Tensor)
Pointwise("aten::bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor",
          "(bool[4,6], bool[4,6])");
HEDDLE_DEFINE_OP(bitwise_or_Tensor)
Pointwise("aten::bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor", "(bool[4,6], bool[4,6])");
HEDDLE_DEFINE_OP(bitwise_xor_Tensor)
Pointwise("aten::bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor", "(i64[4,6], i64[4,6])");
HEDDLE_DEFINE_OP(bitwise_not) Pointwise("aten::bitwise_not(Tensor self) -> Tensor", "(bool[4,6])");

// Choice
HEDDLE_DEFINE_OP(where_self)
Make("aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", WhereShape,
     "(bool[4,6], f32[4,6], f32[])", "1+2");
HEDDLE_DEFINE_OP(where_ScalarOther)
Make("aten::where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor", WhereShape,
     "(bool[4,6], f32[4,6], other=0)", "");
HEDDLE_DEFINE_OP(where_ScalarSelf)
Make("aten::where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor", WhereShape,
     "(bool[4,6], f32[4,6], self=0)", "");
HEDDLE_DEFINE_OP(masked_fill_Scalar)
Make("aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor", MaskedFillShape,
     "(f32[4,6], bool[6], value=-inf)", "");
HEDDLE_DEFINE_OP(masked_fill_Tensor)
CastLast("aten::masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor",
         MaskedFillShape, "(f32[4,6], bool[4,6], f32[])");
HEDDLE_DEFINE_OP(copy)
CastLast("aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", LikeFirst,
         "(f32[4,6], bf16[6])");
HEDDLE_DEFINE_OP(fill_Scalar)
Make("aten::fill.Scalar(Tensor self, Scalar value) -> Tensor", LikeFirst, "(f32[4,6], value=1)",
     "");
HEDDLE_DEFINE_OP(fill_Tensor)
CastLast("aten::fill.Tensor(Tensor self, Tensor value) -> Tensor", LikeFirst, "(f32[4,6], f32[])");

}  // namespace heddle
