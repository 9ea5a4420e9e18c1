// Table lookup and its gradient.
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

Status CheckIndices(const OpArgs& args, size_t i) {
  if (args.dtype(i) == DType::kI64 || args.dtype(i) == DType::kI32) return Done{};
  return Error(Diag::kDTypeMismatch, "operand {} is {}, expected i64 or i32 indices", i,
               Name(args.dtype(i)));
}

Result<Types> EmbeddingShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 0, 2));
  HEDDLE_RETURN_IF_ERROR(CheckIndices(args, 1));
  Dims dims = args.dims(1);
  dims.push_back(args.dims(0)[1]);
  return Types{Type::Tensor(args.dtype(0), std::move(dims))};
}

Result<Types> EmbeddingBackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckIndices(args, 1));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 0, args[1].rank() + 1));
  for (size_t d = 0; d < args[1].rank(); ++d) {
    HEDDLE_RETURN_IF_ERROR(CheckSame(args,
                                     fmt::format("gradient and indices differ in dimension {}", d),
                                     args.dims(0)[d], args.dims(1)[d]));
  }
  if (args.Int("num_weights") < 0 && !IsSymbol(args.Int("num_weights")))
    return Error(Diag::kShapeMismatch, "`num_weights` is {}, expected at least 0",
                 args.Int("num_weights"));
  return Types{Type::Tensor(args.dtype(0), {args.Int("num_weights"), args.dims(0).back()})};
}

// Lookups use row numbers. A rank with some of the rows returns zeros for the others, so its result
// is partial. Positions can be split; the gradient is then partial.
Result<Factors> EmbeddingFactors(const OpArgs& args, const Types& results) {
  bool backward = args.op().schema.Find("num_weights") != nullptr;
  const Type& table = backward ? results[0] : args[0];
  Factors factors;
  // Rows are scaled by their number of occurrences among all positions.
  bool counted = backward && args.Bool("scale_grad_by_freq");
  TensorFactors positions = AddDims(factors, args[1], "i",
                                    counted    ? FactorKind::kWhole
                                    : backward ? FactorKind::kReduce
                                               : FactorKind::kKeep);
  // These two features compare row numbers, which differ after a rank shifts them.
  bool numbered = args.Int("padding_idx") >= 0 || args.Bool("scale_grad_by_freq");
  FactorId v = factors.Add("v", table.dims[0],
                           numbered   ? FactorKind::kWhole
                           : backward ? FactorKind::kKeep
                                      : FactorKind::kReduce);
  factors.factors[v].masked = !numbered;
  FactorId d = factors.Add("d", table.dims[1]);
  TensorFactors rows = positions;
  rows.push_back({d});
  TensorFactors weights{{v}, {d}};
  factors.operands = {backward ? rows : weights, positions};
  factors.results = {backward ? weights : rows};
  return factors;
}

// A lookup reads only the selected rows of the table.
Work EmbeddingWork(const OpArgs& args, const Types& results) {
  Bytes rows =
      BytesOf(args, args.op().schema.Find("num_weights") != nullptr ? args[0] : results[0]);
  return {{0}, rows + BytesOf(args, args[1]), BytesOf(args, results[0])};
}

}  // namespace

HEDDLE_DEFINE_OP(embedding){
    .schema =
        "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool "
        "scale_grad_by_freq=False, bool sparse=False) -> Tensor",
    .shape = EmbeddingShape,
    .factors = {.compute = EmbeddingFactors, .linear = "0"},
    .work = EmbeddingWork,
    .lookup = RowLookup{},
    .example = "(f32[10,6], i64[2,3] below 10)",
};
HEDDLE_DEFINE_OP(embedding_dense_backward){
    .schema =
        "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, "
        "SymInt padding_idx, bool scale_grad_by_freq) -> Tensor",
    .shape = EmbeddingBackwardShape,
    .factors = {.compute = EmbeddingFactors, .linear = "0"},
    .work = EmbeddingWork,
    .lookup = RowLookup{.table = RowLookup::kResult,
                        .out_of_shard = OutOfShardRows::kZeroInOperand,
                        .size_attr = "num_weights"},
    .example =
        "(f32[2,3,6], i64[2,3] below 10, num_weights=10, padding_idx=-1, scale_grad_by_freq=false)",
};

}  // namespace heddle
