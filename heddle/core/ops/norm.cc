// Normalisation over the last dimensions.
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

// The number of normalised dimensions. Fails if they are not the operand's last dimensions.
Result<size_t> NormalizedRank(const OpArgs& args, size_t operand) {
  const std::vector<int64_t>& shape = args.Ints("normalized_shape");
  const Dims& dims = args.dims(operand);
  bool fits = shape.size() <= dims.size() && !shape.empty();
  for (size_t d = 0; fits && d < shape.size(); ++d)
    fits = shape[d] == dims[dims.size() - shape.size() + d];
  if (fits) return shape.size();
  return Error(Diag::kShapeMismatch, "operand {} is {}, whose last dimensions are not {}", operand,
               DimsText(args, dims), DimsText(args, shape));
}

// Weights and biases have the normalised shape.
Status CheckWeight(const OpArgs& args, size_t operand) {
  if (!args.has(operand) || args.dims(operand) == args.Ints("normalized_shape")) return Done{};
  return Error(Diag::kShapeMismatch, "operand {} is {}, the normalised shape is {}", operand,
               DimsText(args, args.dims(operand)), DimsText(args, args.Ints("normalized_shape")));
}

// Statistics have one entry per row, in f32 for narrower types.
Type Statistics(const OpArgs& args, size_t operand, size_t normalized) {
  Dims dims = args.dims(operand);
  for (size_t d = dims.size() - normalized; d < dims.size(); ++d) dims[d] = 1;
  bool narrow = ItemSize(args.dtype(operand)) < 4;
  return Type::Tensor(narrow ? DType::kF32 : args.dtype(operand), std::move(dims));
}

Result<Types> RmsNormShape(const OpArgs& args) {
  HEDDLE_TRY(size_t n, NormalizedRank(args, 0));
  HEDDLE_RETURN_IF_ERROR(CheckWeight(args, 1));
  return Types{args[0], Statistics(args, 0, n)};
}

Result<Types> LayerNormShape(const OpArgs& args) {
  HEDDLE_TRY(size_t n, NormalizedRank(args, 0));
  HEDDLE_RETURN_IF_ERROR(CheckWeight(args, 1));
  HEDDLE_RETURN_IF_ERROR(CheckWeight(args, 2));
  // On CPU, statistics keep the narrow type unless the weight is wider.
  Type statistics = Statistics(args, 0, n);
  statistics.dtype = args.has(1) ? Promote(args.dtype(0), args.dtype(1)) : args.dtype(0);
  return Types{args[0], statistics, statistics};
}

Status CheckMask(const OpArgs& args, size_t length) {
  size_t got = std::get<std::vector<bool>>(args.attr("output_mask")).size();
  if (got == length) return Done{};
  return Error(Diag::kShapeMismatch, "`output_mask` has length {}, expected {}", got, length);
}

// One result each for input, weight and bias. Those not requested are undefined.
Result<Types> BackwardShape(const OpArgs& args, size_t weight) {
  HEDDLE_RETURN_IF_ERROR(NormalizedRank(args, 1));
  const auto& mask = std::get<std::vector<bool>>(args.attr("output_mask"));
  Types results;
  for (size_t i = 0; i < mask.size(); ++i) {
    size_t operand = i == 0 ? 1 : weight + i - 1;
    if (i > 0) HEDDLE_RETURN_IF_ERROR(CheckWeight(args, operand));
    results.push_back(mask[i] && args.has(operand) ? args[operand] : Type());
  }
  return results;
}
Result<Types> RmsNormBackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckMask(args, 2));
  return BackwardShape(args, 3);
}
Result<Types> LayerNormBackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckMask(args, 3));
  return BackwardShape(args, 4);
}

// Rows can be split, and gradients of weights are then partial. Normalised dimensions cannot.
Result<Factors> NormFactors(const OpArgs& args, const Types& results) {
  bool backward = args.op().schema.Find("output_mask") != nullptr;
  const Type& input = args[backward ? 1 : 0];
  size_t normalized = args.Ints("normalized_shape").size();
  Factors factors;
  TensorFactors all = AddDims(factors, input, "d");
  size_t rows = all.size() - normalized;
  for (size_t d = 0; d < all.size(); ++d) {
    factors.factors[d].kind = d >= rows  ? FactorKind::kWhole
                              : backward ? FactorKind::kReduce
                                         : FactorKind::kKeep;
  }
  auto fit = [&](const Type& type) {
    TensorFactors dims(type.rank());
    // Activations and statistics have the full rank; weights do not.
    size_t offset = all.size() - type.rank();
    for (size_t d = 0; d < type.rank(); ++d) {
      if (type.dims[d] == input.dims[offset + d]) dims[d] = all[offset + d];
    }
    return dims;
  };
  for (const Type& type : args.operands()) factors.operands.push_back(fit(type));
  for (const Type& type : results) factors.results.push_back(fit(type));
  return factors;
}

Work NormWork(const OpArgs& args, const Types& results) {
  return WorkOf(args, results, 4 * BoundedElements(args, args[0]));
}

}  // namespace

HEDDLE_DEFINE_OP(_fused_rms_norm){
    .schema =
        "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) "
        "-> (Tensor, Tensor)",
    .shape = RmsNormShape,
    .factors = {.compute = NormFactors},
    .work = NormWork,
    .example = "(f32[2,4,6], normalized_shape=[6], weight=f32[6], eps=1e-5)",
};
HEDDLE_DEFINE_OP(_fused_rms_norm_backward){
    .schema =
        "aten::_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, "
        "Tensor rstd, Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)",
    .shape = RmsNormBackwardShape,
    .factors = {.compute = NormFactors, .linear = "0"},
    .work = NormWork,
    .example =
        "(f32[2,4,6], f32[2,4,6], f32[2,4,1], normalized_shape=[6], weight=f32[6], "
        "output_mask=[true,true])",
};
HEDDLE_DEFINE_OP(native_layer_norm){
    .schema =
        "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? "
        "bias, float eps) -> (Tensor, Tensor, Tensor)",
    .shape = LayerNormShape,
    .factors = {.compute = NormFactors},
    .work = NormWork,
    .example = "(f32[2,4,6], normalized_shape=[6], weight=f32[6], bias=f32[6], eps=1e-5)",
};
HEDDLE_DEFINE_OP(native_layer_norm_backward){
    .schema =
        "aten::native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] "
        "normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] "
        "output_mask) -> (Tensor, Tensor, Tensor)",
    .shape = LayerNormBackwardShape,
    .factors = {.compute = NormFactors, .linear = "0"},
    .work = NormWork,
    .example =
        "(f32[2,4,6], f32[2,4,6], f32[2,4,1], f32[2,4,1], normalized_shape=[6], weight=f32[6], "
        "bias=f32[6], output_mask=[true,true,true])",
};

}  // namespace heddle
