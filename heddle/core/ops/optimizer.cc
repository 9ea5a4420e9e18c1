// Norms of gradients, and optimizer steps. All are functional: the new state is a result, and takes
// over the storage of the old state.
#include "heddle/core/base/text.h"
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

Result<Types> AdamWShape(const OpArgs& args) {
  std::span<const Type> params = args.list(0);
  Types results;
  for (size_t list = 0; list < 5; ++list) {
    std::span<const Type> tensors = args.list(list);
    bool maximum = list == 4;
    size_t expected = maximum && !args.Bool("amsgrad") ? 0 : params.size();
    if (tensors.size() != expected) {
      return Error(Diag::kOperandCount, "list {} has {}, expected {}", list,
                   Counted(tensors.size(), "tensor"), expected);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].dims != params[i].dims) {
        return Error(Diag::kShapeMismatch, "list {} has a tensor {} where the parameter is {}",
                     list, DimsText(args, tensors[i].dims), DimsText(args, params[i].dims));
      }
      results.push_back(tensors[i]);
    }
  }
  if (args.list(5).size() != params.size()) {
    return Error(Diag::kOperandCount, "there are {} for {}",
                 Counted(args.list(5).size(), "step counter"), Counted(params.size(), "parameter"));
  }
  return results;
}

// Elementwise for each parameter.
Result<Factors> AdamWFactors(const OpArgs& args, const Types& results) {
  Factors factors;
  std::vector<TensorFactors> dims;
  for (size_t i = 0; i < args.list(0).size(); ++i)
    dims.push_back(AddDims(factors, args.list(0)[i], fmt::format("p{}_", i)));
  for (size_t list = 0; list < 6; ++list) {
    for (size_t i = 0; i < args.list(list).size(); ++i) {
      factors.operands.push_back(args.list(list)[i].rank() == dims[i].size()
                                     ? dims[i]
                                     : TensorFactors(args.list(list)[i].rank()));
    }
  }
  while (factors.operands.size() < args.size())
    factors.operands.push_back(TensorFactors(args[factors.operands.size()].rank()));
  for (size_t i = 0; i < results.size(); ++i) factors.results.push_back(dims[i % dims.size()]);
  return factors;
}

// Checks that the operands' positions in the result increase and are in range.
Status CheckPlaces(std::span<const int64_t> places, int64_t operands, int64_t count) {
  if (static_cast<int64_t>(places.size()) != operands)
    return Error(Diag::kOperandCount, "there are {} for {}", Counted(places.size(), "place"),
                 Counted(operands, "tensor"));
  int64_t least = 0;
  for (int64_t place : places) {
    if (place < least || place >= count)
      return Error(Diag::kDimRange, "place {} is not from {} to {}", place, least, count - 1);
    least = place + 1;
  }
  return Done{};
}

// One number for each operand, in the widest type of all.
Result<Types> SquaredNormShape(const OpArgs& args) {
  if (args.size() == 0) return Error(Diag::kOperandCount, "the list of tensors is empty");
  DType dtype = DType::kNone;
  for (const Type& type : args.operands()) dtype = Promote(dtype, ToReal(type.dtype));
  if (!IsFloat(dtype))
    return Error(Diag::kDTypeMismatch, "a norm of {} is not defined", Name(dtype));
  auto count = static_cast<int64_t>(args.size());
  if (const std::vector<int64_t>& places = args.Ints("places"); !places.empty()) {
    HEDDLE_RETURN_IF_ERROR(CheckPlaces(places, count, args.Int("count")));
    count = args.Int("count");
  }
  return Types{Type::Tensor(dtype, {count})};
}

// Parts of all operands give partial sums.
Result<Factors> SquaredNormFactors(const OpArgs& args, const Types& results) {
  Factors factors;
  for (size_t i = 0; i < args.size(); ++i)
    factors.operands.push_back(AddDims(factors, args[i], fmt::format("p{}_", i)));
  for (Factor& factor : factors.factors) factor.kind = FactorKind::kReduce;
  for (const Type& result : results) factors.results.push_back(TensorFactors(result.rank()));
  factors.sums_parts = true;
  return factors;
}

Work SquaredNormWork(const OpArgs& args, const Types& results) {
  int64_t elements = 0;
  for (const Type& type : args.operands()) elements += BoundedElements(args, type);
  return WorkOf(args, results, 2 * elements);
}

Result<Types> NormalizeShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 0, 2));
  if (!IsFloat(args.dtype(0)))
    return Error(Diag::kDTypeMismatch, "a norm of {} is not defined", Name(args.dtype(0)));
  return Types{args[0]};
}

Work NormalizeWork(const OpArgs& args, const Types& results) {
  return WorkOf(args, results, 3 * BoundedElements(args, args[0]));
}

// Gradients are only read, unless the step unscales them.
constexpr SparedList kGradsUnlessScaled{.list = "grads", .unless = "grad_scale"};

Work AdamWWork(const OpArgs& args, const Types& results) {
  int64_t elements = 0;
  for (const Type& param : args.list(0)) elements += BoundedElements(args, param);
  return WorkOf(args, results, 16 * elements);
}

}  // namespace

// The square of the Euclidean norm of each tensor, as one vector. With `places`, tensor i is at
// places[i] of `count` entries, and other entries are zero.
HEDDLE_DEFINE_OP(heddle_squared_norm){
    .schema = "heddle::squared_norm(Tensor... inputs, *, int[] places=[], int count=0) -> Tensor",
    .shape = SquaredNormShape,
    .factors = {.compute = SquaredNormFactors},
    .work = SquaredNormWork,
    .example = "(f32[4,6], f32[6])",
};
// A matrix divided by its Euclidean norm, or by `eps` if that is larger. Ranks have the whole
// matrix, so that they sum in the same order as one device.
HEDDLE_DEFINE_OP(heddle_normalize){
    .schema = "heddle::normalize(Tensor self, *, float eps) -> Tensor",
    .shape = NormalizeShape,
    .factors = {.text = "(m n) -> (m n) whole{m n}"},
    .work = NormalizeWork,
    .example = "(bf16[4,6], eps=1e-7)",
};
HEDDLE_DEFINE_OP(_fused_adamw){
    .schema =
        "aten::_fused_adamw(Tensor[] self, Tensor[] grads, Tensor[] exp_avgs, Tensor[] "
        "exp_avg_sqs, Tensor[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, "
        "float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? "
        "grad_scale=None, Tensor? found_inf=None) -> (Tensor[] self_out, Tensor[] grads_out, "
        "Tensor[] exp_avgs_out, Tensor[] exp_avg_sqs_out, Tensor[] max_exp_avg_sqs_out)",
    .shape = AdamWShape,
    .factors = {.compute = AdamWFactors},
    .work = AdamWWork,
    .effect = Effect::kUpdate,
    .spared = kGradsUnlessScaled,
    .example =
        "([f32[4,6]], [f32[4,6]], [f32[4,6]], [f32[4,6]], [], [f32[]], lr=0.001, beta1=0.9, "
        "beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)",
};
HEDDLE_DEFINE_OP(_fused_adamw_tensor_lr){
    .schema =
        "aten::_fused_adamw.tensor_lr(Tensor[] self, Tensor[] grads, Tensor[] exp_avgs, Tensor[] "
        "exp_avg_sqs, Tensor[] max_exp_avg_sqs, Tensor[] state_steps, *, Tensor lr, float beta1, "
        "float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? "
        "grad_scale=None, Tensor? found_inf=None) -> (Tensor[] self_out, Tensor[] grads_out, "
        "Tensor[] exp_avgs_out, Tensor[] exp_avg_sqs_out, Tensor[] max_exp_avg_sqs_out)",
    .shape = AdamWShape,
    .factors = {.compute = AdamWFactors},
    .work = AdamWWork,
    .effect = Effect::kUpdate,
    .spared = kGradsUnlessScaled,
    .example =
        "([f32[4,6]], [f32[4,6]], [f32[4,6]], [f32[4,6]], [], [f32[]], f32[], beta1=0.9, "
        "beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)",
};

}  // namespace heddle
