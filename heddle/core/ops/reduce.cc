// Reductions, scans and softmax.
#include <algorithm>

#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

// The dimensions without the flagged ones, or with size 1 for them.
Dims Reduced(const Dims& dims, const std::vector<bool>& flags, bool keep) {
  Dims out;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!flags[d]) {
      out.push_back(dims[d]);
    } else if (keep) {
      out.push_back(1);
    }
  }
  return out;
}

// Flags of the reduced dimensions: those of a `dim` list, one `dim`, or all.
Result<std::vector<bool>> ReducedDims(const OpArgs& args) {
  size_t rank = args[0].rank();
  const Arg* dim = args.op().schema.Find("dim");
  if (dim == nullptr || args.IsNone("dim")) return std::vector<bool>(rank, true);
  if (dim->kind == ArgKind::kIntList) return DimFlags(args, rank);
  HEDDLE_TRY(size_t d, DimAttr(args, rank));
  std::vector<bool> flags(rank, false);
  if (rank > 0) flags[d] = true;
  return flags;
}

bool KeepDim(const OpArgs& args) {
  return args.op().schema.Find("keepdim") != nullptr && args.Bool("keepdim");
}

Result<Types> ReduceTo(const OpArgs& args, std::initializer_list<DType> dtypes) {
  HEDDLE_TRY(std::vector<bool> flags, ReducedDims(args));
  Types results;
  for (DType dtype : dtypes)
    results.push_back(Type::Tensor(dtype, Reduced(args.dims(0), flags, KeepDim(args))));
  return results;
}

// Sums of integers are i64, unless `dtype` is given.
Result<Types> SumShape(const OpArgs& args) {
  DType dtype = IsInteger(args.dtype(0)) ? DType::kI64 : args.dtype(0);
  return ReduceTo(args, {args.DTypeOr("dtype", dtype)});
}
Result<Types> MeanShape(const OpArgs& args) {
  DType dtype = args.DTypeOr("dtype", args.dtype(0));
  if (IsInteger(dtype))
    return Error(Diag::kDTypeMismatch, "a mean of {} is not defined", Name(dtype));
  return ReduceTo(args, {dtype});
}
Result<Types> SameDTypeShape(const OpArgs& args) { return ReduceTo(args, {args.dtype(0)}); }
Result<Types> RealShape(const OpArgs& args) {
  DType dtype = args.op().schema.Find("dtype") != nullptr ? args.DTypeOr("dtype", args.dtype(0))
                                                          : args.dtype(0);
  return ReduceTo(args, {ToReal(IsInteger(dtype) ? DType::kF32 : dtype)});
}
Result<Types> AnyShape(const OpArgs& args) { return ReduceTo(args, {DType::kBool}); }
Result<Types> IndexShape(const OpArgs& args) { return ReduceTo(args, {DType::kI64}); }
Result<Types> ValueIndexShape(const OpArgs& args) {
  return ReduceTo(args, {args.dtype(0), DType::kI64});
}
Result<Types> VarMeanShape(const OpArgs& args) {
  return ReduceTo(args, {ToReal(args.dtype(0)), args.dtype(0)});
}

Result<Factors> ReduceFactors(const OpArgs& args, const Types& results, FactorKind kind,
                              ReduceOp op) {
  HEDDLE_TRY(std::vector<bool> flags, ReducedDims(args));
  Factors factors;
  TensorFactors all = AddDims(factors, args[0], "d");
  TensorFactors kept;
  for (size_t d = 0; d < all.size(); ++d) {
    if (!flags[d]) {
      kept.push_back(all[d]);
      continue;
    }
    factors.factors[d].kind = kind;
    factors.factors[d].reduce = op;
    if (KeepDim(args)) kept.push_back({});
  }
  factors.operands = {all};
  factors.results.assign(results.size(), kept);
  return factors;
}
Result<Factors> SumFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(Factors factors, ReduceFactors(args, results, FactorKind::kReduce, ReduceOp::kSum));
  // Elements are cast before the sum.
  if (CastKeepsSums(args.dtype(0), results[0].dtype)) factors.linear.push_back({0});
  return factors;
}
Result<Factors> MaxFactors(const OpArgs& args, const Types& results) {
  return ReduceFactors(args, results, FactorKind::kReduce, ReduceOp::kMax);
}
Result<Factors> MinFactors(const OpArgs& args, const Types& results) {
  return ReduceFactors(args, results, FactorKind::kReduce, ReduceOp::kMin);
}
// A plain reduction cannot combine the results of parts.
Result<Factors> WholeReduceFactors(const OpArgs& args, const Types& results) {
  return ReduceFactors(args, results, FactorKind::kWhole, ReduceOp::kSum);
}

Work ReduceWork(const OpArgs& args, const Types& results) {
  return WorkOf(args, results, BoundedElements(args, args[0]));
}

constexpr OpDef Reduce(std::string_view schema, ShapeFn shape, FactorsFn factors,
                       std::string_view linear, std::string_view example) {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = factors, .linear = linear},
          .work = ReduceWork,
          .example = example};
}

// --- One dimension cannot be split, and the shape is unchanged: scans and softmax

Result<Types> ScanShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(DimAttr(args, args[0].rank()));
  DType dtype = IsInteger(args.dtype(0)) ? DType::kI64 : args.dtype(0);
  return Types{Type::Tensor(args.DTypeOr("dtype", dtype), args.dims(0))};
}

// `half_to_float` and `input_dtype` are autograd's arguments for a softmax that also casts.
Result<Types> SoftmaxShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(DimAttr(args, args[0].rank()));
  DType dtype = args.dtype(0);
  if (args.op().schema.Find("half_to_float") != nullptr && args.Bool("half_to_float"))
    dtype = DType::kF32;
  if (args.op().schema.Find("dtype") != nullptr) dtype = args.DTypeOr("dtype", dtype);
  return Types{Type::Tensor(dtype, args.dims(0))};
}

Result<Types> SoftmaxBackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(DimAttr(args, args[0].rank()));
  if (args.dims(0) != args.dims(1)) {
    return Error(Diag::kShapeMismatch, "the gradient is {}, the output {}",
                 DimsText(args, args.dims(0)), DimsText(args, args.dims(1)));
  }
  return Types{Type::Tensor(std::get<DType>(args.attr("input_dtype")), args.dims(0))};
}

Result<Factors> DimWholeFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  std::vector<bool> whole(args[0].rank());
  if (!whole.empty()) whole[dim] = true;
  return SameDimsFactors(args, results, whole);
}

Result<Factors> CumsumFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(Factors factors, DimWholeFactors(args, results));
  if (CastKeepsSums(args.dtype(0), results[0].dtype)) factors.linear.push_back({0});
  return factors;
}

Work SoftmaxWork(const OpArgs& args, const Types& results) {
  return WorkOf(args, results, 5 * BoundedElements(args, args[0]));
}

constexpr OpDef AlongDim(std::string_view schema, ShapeFn shape, WorkFn work,
                         std::string_view linear, std::string_view example) {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = DimWholeFactors, .linear = linear},
          .work = work,
          .example = example};
}

}  // namespace

HEDDLE_DEFINE_OP(sum)
Reduce("aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", SumShape, SumFactors, "",
       "(i64[4,6])");
HEDDLE_DEFINE_OP(sum_dim_IntList)
Reduce(
    "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? "
    "dtype=None) -> Tensor",
    SumShape, SumFactors, "", "(bf16[4,6,2], dim=[0,-1], keepdim=true, dtype=f32)");
HEDDLE_DEFINE_OP(mean)
Reduce("aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", MeanShape,
       WholeReduceFactors, "0", "(f32[4,6])");
HEDDLE_DEFINE_OP(mean_dim)
Reduce(
    "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> "
    "Tensor",
    MeanShape, WholeReduceFactors, "0", "(f32[4,6], dim=[-1], keepdim=true)");
HEDDLE_DEFINE_OP(amax)
Reduce("aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", SameDTypeShape,
       MaxFactors, "", "(f32[4,6], dim=[1])");
HEDDLE_DEFINE_OP(amin)
Reduce("aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", SameDTypeShape,
       MinFactors, "", "(f32[4,6])");
HEDDLE_DEFINE_OP(max)
Reduce("aten::max(Tensor self) -> Tensor", SameDTypeShape, MaxFactors, "", "(f32[4,6])");
HEDDLE_DEFINE_OP(min)
Reduce("aten::min(Tensor self) -> Tensor", SameDTypeShape, MinFactors, "", "(f32[4,6])");
HEDDLE_DEFINE_OP(max_dim)
Reduce("aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
       ValueIndexShape, WholeReduceFactors, "", "(f32[4,6], dim=1)");
HEDDLE_DEFINE_OP(min_dim)
Reduce("aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
       ValueIndexShape, WholeReduceFactors, "", "(f32[4,6], dim=0, keepdim=true)");
HEDDLE_DEFINE_OP(argmax)
Reduce("aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", IndexShape,
       WholeReduceFactors, "", "(f32[4,6], dim=1)");
HEDDLE_DEFINE_OP(argmin)
Reduce("aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", IndexShape,
       WholeReduceFactors, "", "(f32[4,6])");
HEDDLE_DEFINE_OP(prod_dim_int)
Reduce(
    "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> "
    "Tensor",
    SumShape, WholeReduceFactors, "", "(f32[4,6], dim=1)");
HEDDLE_DEFINE_OP(any)
Reduce("aten::any(Tensor self) -> Tensor", AnyShape, WholeReduceFactors, "", "(bool[4,6])");
HEDDLE_DEFINE_OP(any_dim)
Reduce("aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", AnyShape,
       WholeReduceFactors, "", "(bool[4,6], dim=1)");
HEDDLE_DEFINE_OP(all)
Reduce("aten::all(Tensor self) -> Tensor", AnyShape, WholeReduceFactors, "", "(bool[4,6])");
HEDDLE_DEFINE_OP(all_dim)
Reduce("aten::all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", AnyShape,
       WholeReduceFactors, "", "(bool[4,6], dim=1)");
HEDDLE_DEFINE_OP(logsumexp)
Reduce("aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", RealShape,
       WholeReduceFactors, "", "(f32[4,6], dim=[1])");
HEDDLE_DEFINE_OP(linalg_vector_norm)
Reduce(
    "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor",
    RealShape, WholeReduceFactors, "", "(f32[4,6], dim=[1], keepdim=true)");
HEDDLE_DEFINE_OP(var_correction)
Reduce(
    "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool "
    "keepdim=False) -> Tensor",
    RealShape, WholeReduceFactors, "", "(f32[4,6], dim=[1], correction=0)");
HEDDLE_DEFINE_OP(var_mean_correction)
Reduce(
    "aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool "
    "keepdim=False) -> (Tensor, Tensor)",
    VarMeanShape, WholeReduceFactors, "", "(f32[4,6], dim=[1], keepdim=true)");

HEDDLE_DEFINE_OP(cumsum){
    .schema = "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
    .shape = ScanShape,
    .factors = {.compute = CumsumFactors},
    .example = "(i32[4,6], dim=0)",
};
HEDDLE_DEFINE_OP(cumprod)
AlongDim("aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", ScanShape,
         nullptr, "", "(f32[4,6], dim=1)");
HEDDLE_DEFINE_OP(_softmax)
AlongDim("aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", SoftmaxShape,
         SoftmaxWork, "", "(f32[4,6], dim=-1, half_to_float=false)");
HEDDLE_DEFINE_OP(_softmax_backward_data)
AlongDim(
    "aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType "
    "input_dtype) -> Tensor",
    SoftmaxBackwardShape, SoftmaxWork, "0", "(f32[4,6], f32[4,6], dim=-1, input_dtype=f32)");
HEDDLE_DEFINE_OP(_log_softmax)
AlongDim("aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", SoftmaxShape,
         SoftmaxWork, "", "(f32[4,6], dim=1, half_to_float=false)");
HEDDLE_DEFINE_OP(_log_softmax_backward_data)
AlongDim(
    "aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType "
    "input_dtype) -> Tensor",
    SoftmaxBackwardShape, SoftmaxWork, "0", "(f32[4,6], f32[4,6], dim=1, input_dtype=f32)");
HEDDLE_DEFINE_OP(_safe_softmax)
AlongDim("aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
         SoftmaxShape, SoftmaxWork, "", "(f32[4,6], dim=-1)");

}  // namespace heddle
