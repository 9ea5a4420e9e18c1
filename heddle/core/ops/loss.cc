// Losses. `reduction` is 0 for none, 1 for the mean, 2 for the sum.
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

constexpr int64_t kNone = 0;
constexpr int64_t kMean = 1;
constexpr int64_t kSum = 2;

Status CheckReduction(const OpArgs& args) {
  int64_t reduction = args.Int("reduction");
  if (reduction >= kNone && reduction <= kSum) return Done{};
  return Error(Diag::kShapeMismatch, "`reduction` is {}, expected 0 (none), 1 (mean) or 2 (sum)",
               reduction);
}

// Scores by row, and one target per row.
Status CheckScores(const OpArgs& args, size_t scores) {
  HEDDLE_RETURN_IF_ERROR(CheckReduction(args));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, scores, 2));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, scores + 1, 1));
  return CheckSame(args, "rows of scores and targets differ", args.dims(scores)[0],
                   args.dims(scores + 1)[0]);
}

Result<Types> NllForwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckScores(args, 0));
  Type total = Type::Tensor(args.dtype(0), {});
  if (args.Int("reduction") == kNone)
    return Types{Type::Tensor(args.dtype(0), {args.dims(0)[0]}), total};
  return Types{total, total};
}

Result<Types> NllBackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckScores(args, 1));
  return Types{args[1]};
}

// The sum over some rows is a partial sum. A mean first divides by the number of all rows. Classes
// are looked up by number; a rank with some of the classes ignores the rows of the others.
Result<Factors> NllFactors(const OpArgs& args, const Types& results) {
  int64_t reduction = args.Int("reduction");
  bool backward = args.op().schema.Find("grad_output") != nullptr;
  const Type& scores = args[backward ? 1 : 0];
  FactorKind rows = backward || reduction == kNone ? FactorKind::kKeep
                    : reduction == kSum            ? FactorKind::kReduce
                                                   : FactorKind::kWhole;
  Factors factors;
  FactorId n = factors.Add("n", scores.dims[0], rows);
  // `ignore_index` is a class number, which would differ after a rank shifts the numbers.
  int64_t ignored = args.Int("ignore_index");
  bool numbered = ignored >= 0 && (IsSymbol(scores.dims[1]) || ignored < scores.dims[1]);
  bool whole = reduction == kMean || numbered;
  FactorKind classes = whole      ? FactorKind::kWhole
                       : backward ? FactorKind::kKeep
                                  : FactorKind::kReduce;
  FactorId c = factors.Add("c", scores.dims[1], classes);
  factors.factors[c].masked = !whole;
  auto fit = [&](const Type& type, bool per_class) -> TensorFactors {
    if (type.rank() == 2) return {{n}, {c}};
    if (type.rank() == 0) return {};
    return per_class ? TensorFactors{{c}} : TensorFactors{{n}};
  };
  for (const Arg& arg : args.op().schema.args) {
    if (IsOperand(arg.kind))
      factors.operands.push_back(fit(args[factors.operands.size()], arg.name == "weight"));
  }
  for (const Type& type : results) factors.results.push_back(fit(type, false));
  if (backward) {
    factors.linear.push_back({0});
    // Only a mean needs the total weight.
    if (reduction != kMean) factors.unread.push_back(static_cast<uint32_t>(args.size() - 1));
  }
  return factors;
}

// Forward reads only the scores of the targets. Elsewhere the gradient is zero.
Work NllWork(const OpArgs& args, const Types& results) {
  bool backward = args.op().schema.Find("grad_output") != nullptr;
  const Type& scores = args[backward ? 1 : 0];
  Type read = Type::Tensor(scores.dtype, {scores.dims[0]});
  return {
      {0}, BytesOf(args, read) + BytesOf(args, args[backward ? 2 : 1]), BytesOf(args, results[0])};
}

Result<Types> MseShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckReduction(args));
  HEDDLE_TRY(Dims dims, Broadcast(args));
  DType dtype = PromotedDType(args);
  return Types{Type::Tensor(dtype, args.Int("reduction") == kNone ? std::move(dims) : Dims{})};
}

Result<Types> MseBackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckReduction(args));
  HEDDLE_TRY(Dims dims, Broadcast(args));
  return Types{Type::Tensor(PromotedDType(args), std::move(dims))};
}

Result<Factors> MseFactors(const OpArgs& args, const Types& results) {
  int64_t reduction = args.Int("reduction");
  FactorKind kind = reduction == kSum    ? FactorKind::kReduce
                    : reduction == kMean ? FactorKind::kWhole
                                         : FactorKind::kKeep;
  HEDDLE_TRY(Dims dims, Broadcast(args));
  // The elementwise loss before the reduction.
  HEDDLE_TRY(Factors factors,
             PointwiseFactors(args, {Type::Tensor(results[0].dtype, std::move(dims))}));
  for (Factor& factor : factors.factors) factor.kind = kind;
  if (kind != FactorKind::kKeep) factors.results = {TensorFactors()};
  return factors;
}

// A mean divides by the number of all elements, which a rank with a part does not have.
Result<Factors> MseBackwardFactors(const OpArgs& args, const Types& results) {
  if (args.Int("reduction") == kMean) return WholeFactors(args, results);
  HEDDLE_TRY(Factors factors, PointwiseFactors(args, results));
  factors.linear.push_back({0});
  return factors;
}

}  // namespace

HEDDLE_DEFINE_OP(nll_loss_forward){
    .schema =
        "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt "
        "ignore_index) -> (Tensor output, Tensor total_weight)",
    .shape = NllForwardShape,
    .factors = {.compute = NllFactors},
    .work = NllWork,
    .lookup = RowLookup{.dim = 1, .out_of_shard = OutOfShardRows::kIgnored},
    .example = "(f32[6,10], i64[6] below 10, reduction=2, ignore_index=-100)",
};
HEDDLE_DEFINE_OP(nll_loss_backward){
    .schema =
        "aten::nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, "
        "int reduction, SymInt ignore_index, Tensor total_weight) -> Tensor",
    .shape = NllBackwardShape,
    .factors = {.compute = NllFactors},
    .work = NllWork,
    .lookup = RowLookup{.table = 1, .index = 2, .dim = 1, .out_of_shard = OutOfShardRows::kIgnored},
    .example = "(f32[], f32[6,10], i64[6] below 10, f32[], reduction=2, ignore_index=-100)",
};
HEDDLE_DEFINE_OP(mse_loss){
    .schema = "aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
    .shape = MseShape,
    .factors = {.compute = MseFactors},
    .example = "(f32[4,6], f32[4,6], reduction=2)",
};
HEDDLE_DEFINE_OP(mse_loss_backward){
    .schema =
        "aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> "
        "Tensor",
    .shape = MseBackwardShape,
    .factors = {.compute = MseBackwardFactors},
    .example = "(f32[], f32[4,6], f32[4,6], reduction=2)",
};

}  // namespace heddle
