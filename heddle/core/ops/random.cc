// Random numbers.
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

Result<Types> SizedAs(const OpArgs& args, DType otherwise) {
  Dims dims = args.Ints("size");
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 0 && !IsSymbol(dims[d]))
      return Error(Diag::kReshape, "size {} of dimension {} is negative", dims[d], d);
  }
  return Types{Type::Tensor(args.DTypeOr("dtype", otherwise), std::move(dims))};
}
Result<Types> SizedShape(const OpArgs& args) { return SizedAs(args, DType::kF32); }
Result<Types> RandintShape(const OpArgs& args) { return SizedAs(args, DType::kI64); }
Result<Types> LikeShape(const OpArgs& args) {
  bool typed = args.op().schema.Find("dtype") != nullptr;
  return Types{
      Type::Tensor(typed ? args.DTypeOr("dtype", args.dtype(0)) : args.dtype(0), args.dims(0))};
}
Result<Types> RandpermShape(const OpArgs& args) {
  if (args.Int("n") < 0) return Error(Diag::kReshape, "size {} is negative", args.Int("n"));
  return Types{Type::Tensor(args.DTypeOr("dtype", DType::kI64), {args.Int("n")})};
}
Result<Types> DropoutShape(const OpArgs& args) {
  return Types{args[0], Type::Tensor(DType::kBool, args.dims(0))};
}
Result<Types> DropoutBackwardShape(const OpArgs& args) {
  HEDDLE_TRY(Dims dims, Broadcast(args));
  return Types{Type::Tensor(args.dtype(0), std::move(dims))};
}

// A rank draws for its own part of the operand: other numbers than one device, of the same
// distribution. Without a part, each rank would compute on all rows from here on.
Result<Factors> DrawFactors(const OpArgs& args, const Types& results) {
  return args.size() == 0 ? WholeFactors(args, results) : PointwiseFactors(args, results);
}

constexpr OpDef Random(std::string_view schema, ShapeFn shape, std::string_view example,
                       std::string_view shape_attr = "") {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = DrawFactors},
          .effect = Effect::kRandom,
          .shape_attr = shape_attr,
          .example = example};
}

}  // namespace

HEDDLE_DEFINE_OP(rand)
Random(
    "aten::rand(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None) -> Tensor",
    SizedShape, "(size=[4,6])", "size");
HEDDLE_DEFINE_OP(randn)
Random(
    "aten::randn(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None) -> Tensor",
    SizedShape, "(size=[4,6], dtype=bf16)", "size");
HEDDLE_DEFINE_OP(rand_like)
Random(
    "aten::rand_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    LikeShape, "(f32[4,6])");
HEDDLE_DEFINE_OP(randn_like)
Random(
    "aten::randn_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
    "device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    LikeShape, "(f32[4,6])");
HEDDLE_DEFINE_OP(randint_low)
Random(
    "aten::randint.low(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=i64, Layout? "
    "layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    RandintShape, "(low=2, high=9, size=[4,6])", "size");
HEDDLE_DEFINE_OP(randperm)
Random(
    "aten::randperm(SymInt n, *, ScalarType? dtype=i64, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None) -> Tensor",
    RandpermShape, "(n=7)");
HEDDLE_DEFINE_OP(bernoulli)
Random("aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor", LikeShape,
       "(f32[4,6] probability)");
HEDDLE_DEFINE_OP(bernoulli_p)
Random("aten::bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor", LikeShape,
       "(f32[4,6], p=0.5)");
HEDDLE_DEFINE_OP(native_dropout)
Random("aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", DropoutShape,
       "(f32[4,6], p=0.5, train=true)");
HEDDLE_DEFINE_OP(native_dropout_backward){
    .schema =
        "aten::native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor",
    .shape = DropoutBackwardShape,
    .factors = {.compute = PointwiseFactors, .linear = "0"},
    .example = "(f32[4,6], bool[4,6], scale=2.0)",
};

}  // namespace heddle
