// Matrix products.
#include <algorithm>
#include <map>

#include "heddle/core/base/text.h"
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

// Checks that dimension `a_dim` of operand `a` equals dimension `b_dim` of operand `b`.
Status CheckInner(const OpArgs& args, size_t a, size_t a_dim, size_t b, size_t b_dim) {
  Dim left = args.dims(a)[a_dim];
  Dim right = args.dims(b)[b_dim];
  if (left == right) return Done{};
  return Error(Diag::kMmInnerSize, "inner sizes differ: lhs dim {} is {}, rhs dim {} is {}", a_dim,
               DimText(args, left), b_dim, DimText(args, right));
}

Status CheckSameDType(const OpArgs& args, size_t a, size_t b) {
  if (args.dtype(a) == args.dtype(b)) return Done{};
  return Error(Diag::kDTypeMismatch, "operand {} is {}, operand {} is {}", a, Name(args.dtype(a)),
               b, Name(args.dtype(b)));
}

DType OutDType(const OpArgs& args, size_t operand) {
  return args.op().schema.Find("out_dtype") != nullptr
             ? args.DTypeOr("out_dtype", args.dtype(operand))
             : args.dtype(operand);
}

Result<Types> MmShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 0, 2));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 1, 2));
  HEDDLE_RETURN_IF_ERROR(CheckInner(args, 0, 1, 1, 0));
  HEDDLE_RETURN_IF_ERROR(CheckSameDType(args, 0, 1));
  return Types{Type::Tensor(OutDType(args, 0), {args.dims(0)[0], args.dims(1)[1]})};
}

Result<Types> BmmShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 0, 3));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 1, 3));
  HEDDLE_RETURN_IF_ERROR(CheckSame(args, "batch sizes differ", args.dims(0)[0], args.dims(1)[0]));
  HEDDLE_RETURN_IF_ERROR(CheckInner(args, 0, 2, 1, 1));
  HEDDLE_RETURN_IF_ERROR(CheckSameDType(args, 0, 1));
  return Types{
      Type::Tensor(OutDType(args, 0), {args.dims(0)[0], args.dims(0)[1], args.dims(1)[2]})};
}

// Checks that `self` broadcasts to the product.
Status CheckAddend(const OpArgs& args, const Dims& product) {
  const Dims& self = args.dims(0);
  bool fits = self.size() <= product.size();
  for (size_t d = 0; fits && d < self.size(); ++d) {
    Dim wanted = product[product.size() - self.size() + d];
    fits = self[d] == wanted || self[d] == 1;
  }
  if (fits) return Done{};
  return Error(Diag::kShapeMismatch, "operand 0 is {}, which does not broadcast to the product {}",
               DimsText(args, self), DimsText(args, product));
}

Result<Types> AddmmShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 1, 2));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 2, 2));
  HEDDLE_RETURN_IF_ERROR(CheckInner(args, 1, 1, 2, 0));
  HEDDLE_RETURN_IF_ERROR(CheckSameDType(args, 1, 2));
  Dims product{args.dims(1)[0], args.dims(2)[1]};
  HEDDLE_RETURN_IF_ERROR(CheckAddend(args, product));
  return Types{Type::Tensor(OutDType(args, 1), std::move(product))};
}

Result<Types> BaddbmmShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 1, 3));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 2, 3));
  HEDDLE_RETURN_IF_ERROR(CheckSame(args, "batch sizes differ", args.dims(1)[0], args.dims(2)[0]));
  HEDDLE_RETURN_IF_ERROR(CheckInner(args, 1, 2, 2, 1));
  HEDDLE_RETURN_IF_ERROR(CheckSameDType(args, 1, 2));
  Dims product{args.dims(1)[0], args.dims(1)[1], args.dims(2)[2]};
  HEDDLE_RETURN_IF_ERROR(CheckAddend(args, product));
  return Types{Type::Tensor(args.dtype(1), std::move(product))};
}

// Every rank would add the addend, so the inner dimension cannot be split.
Result<Factors> AddmmFactors(const OpArgs& args, const Types& results) {
  bool batched = args[1].rank() == 3;
  Factors factors;
  TensorFactors out = AddDims(factors, results[0], "d");
  FactorId k = factors.Add("k", args.dims(1).back(), FactorKind::kWhole);
  TensorFactors self(args[0].rank());
  for (size_t d = 0; d < self.size(); ++d) {
    size_t at = out.size() - self.size() + d;
    if (args.dims(0)[d] == results[0].dims[at]) self[d] = out[at];
  }
  if (batched) {
    factors.operands = {self, {out[0], out[1], {k}}, {out[0], {k}, out[2]}};
  } else {
    factors.operands = {self, {out[0], {k}}, {{k}, out[1]}};
  }
  factors.results = {out};
  return factors;
}

Work MatmulWork(const OpArgs& args, const Types& results) {
  size_t left = args.op().schema.args[0].name == "self" && args.size() == 3 ? 1 : 0;
  int64_t k = BoundedProduct(args, {args.dims(left).back()});
  int64_t flops = 0;
  if (__builtin_mul_overflow(2 * k, BoundedElements(args, results[0]), &flops)) flops = INT64_MAX;
  return WorkOf(args, results, flops);
}

// --- einsum

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

Result<Equation> ParseEquation(const OpArgs& args) {
  const auto& text = std::get<std::string>(args.attr("equation"));
  size_t arrow = text.find("->");
  if (arrow == std::string::npos) return Error(Diag::kEinsum, "equation `{}` has no `->`", text);
  Equation equation;
  auto letters = [](std::string_view part) {
    std::string out;
    for (char c : part) {
      if (c != ' ') out += c;
    }
    return out;
  };
  for (std::string_view part : Split(std::string_view(text).substr(0, arrow), ','))
    equation.inputs.push_back(letters(part));
  equation.output = letters(std::string_view(text).substr(arrow + 2));
  if (equation.inputs.size() != args.size()) {
    return Error(Diag::kEinsum, "equation `{}` has {}, the call {}", text,
                 Counted(equation.inputs.size(), "operand"), args.size());
  }
  return equation;
}

Result<std::map<char, Dim>> LetterSizes(const OpArgs& args, const Equation& equation) {
  std::map<char, Dim> sizes;
  for (size_t i = 0; i < args.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(CheckRank(args, i, equation.inputs[i].size()));
    for (size_t d = 0; d < equation.inputs[i].size(); ++d) {
      char c = equation.inputs[i][d];
      bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!letter || equation.inputs[i].find(c) != d)
        return Error(Diag::kEinsum,
                     "operand {} of the equation has `{}`, which is not a letter or is repeated", i,
                     c);
      auto [at, added] = sizes.emplace(c, args.dims(i)[d]);
      if (!added)
        HEDDLE_RETURN_IF_ERROR(
            CheckSame(args, fmt::format("sizes of `{}` differ", c), at->second, args.dims(i)[d]));
    }
  }
  return sizes;
}

Result<Types> EinsumShape(const OpArgs& args) {
  HEDDLE_TRY(Equation equation, ParseEquation(args));
  HEDDLE_TRY(auto sizes, LetterSizes(args, equation));
  Dims dims;
  for (size_t d = 0; d < equation.output.size(); ++d) {
    char c = equation.output[d];
    if (!sizes.contains(c) || equation.output.find(c) != d)
      return Error(Diag::kEinsum,
                   "the result of the equation has `{}`, which no operand has or which is repeated",
                   c);
    dims.push_back(sizes[c]);
  }
  if (args.size() == 0) return Error(Diag::kOperandCount, "an einsum has at least one operand");
  for (size_t i = 1; i < args.size(); ++i) HEDDLE_RETURN_IF_ERROR(CheckSameDType(args, 0, i));
  return Types{Type::Tensor(args.dtype(0), std::move(dims))};
}

Result<Factors> EinsumFactors(const OpArgs& args, const Types&) {
  HEDDLE_TRY(Equation equation, ParseEquation(args));
  HEDDLE_TRY(auto sizes, LetterSizes(args, equation));
  Factors factors;
  std::map<char, FactorId> ids;
  for (auto [c, size] : sizes) {
    bool kept = equation.output.find(c) != std::string::npos;
    ids[c] = factors.Add(std::string(1, c), size, kept ? FactorKind::kKeep : FactorKind::kReduce);
  }
  auto tensor = [&](const std::string& letters) {
    TensorFactors dims;
    for (char c : letters) dims.push_back({ids[c]});
    return dims;
  };
  for (const std::string& input : equation.inputs) factors.operands.push_back(tensor(input));
  factors.results = {tensor(equation.output)};
  for (uint32_t i = 0; i < args.size(); ++i) factors.linear.push_back({i});
  return factors;
}

Work EinsumWork(const OpArgs& args, const Types& results) {
  int64_t flops = 2;
  Result<Equation> equation = ParseEquation(args);
  if (equation.ok()) {
    Result<std::map<char, Dim>> sizes = LetterSizes(args, *equation);
    if (sizes.ok()) {
      for (auto [c, size] : *sizes) {
        if (__builtin_mul_overflow(flops, args.symbols().Bound(size), &flops)) flops = INT64_MAX;
      }
    }
  }
  return WorkOf(args, results, flops);
}

// --- _grouped_mm: one product per group of rows, columns or inner positions. `offs` has the ends
// of groups.

Result<Types> GroupedMmShape(const OpArgs& args) {
  size_t a = args[0].rank();
  size_t b = args[1].rank();
  if (a < 2 || a > 3 || b < 2 || b > 3) {
    return Error(Diag::kRank, "operands have {} and {} dimensions, expected 2 or 3", a, b);
  }
  HEDDLE_RETURN_IF_ERROR(CheckInner(args, 0, a - 1, 1, b - 2));
  HEDDLE_RETURN_IF_ERROR(CheckSameDType(args, 0, 1));
  bool needs_groups = a == 2 || b == 2;
  if (needs_groups != args.has(2)) {
    return Error(Diag::kOperandCount, "operands of {} and {} dimensions {} `offs`", a, b,
                 needs_groups ? "need" : "take no");
  }
  if (needs_groups) HEDDLE_RETURN_IF_ERROR(CheckRank(args, 2, 1));
  Dim m = args.dims(0)[a - 2];
  Dim n = args.dims(1)[b - 1];
  Dims dims{m, n};
  if (a == 3 && b == 3) {
    HEDDLE_RETURN_IF_ERROR(
        CheckSame(args, "numbers of groups differ", args.dims(0)[0], args.dims(1)[0]));
    dims = {args.dims(0)[0], m, n};
  } else if (a == 2 && b == 2) {
    dims = {args.dims(2)[0], m, n};
  } else {
    HEDDLE_RETURN_IF_ERROR(
        CheckSame(args, "numbers of groups differ", args.dims(a == 3 ? 0 : 1)[0], args.dims(2)[0]));
  }
  return Types{Type::Tensor(OutDType(args, 0), std::move(dims))};
}

Result<Factors> GroupedMmFactors(const OpArgs& args, const Types& results) {
  // The grouped dimension and the groups cannot be split, but the other loops of each product can.
  // If each rank has its own rows, it may also have its own experts.
  const char* rule = nullptr;
  switch (args[0].rank() * 10 + args[1].rank()) {
    case 33: rule = "(g m k, g k n) -> (g m n) reduce{k}"; break;
    case 23: rule = "(t k, g k n, g) -> (t n) reduce{k} whole{t g} local{t g}"; break;
    case 32: rule = "(g m k, k t, g) -> (m t) reduce{k} whole{t g} local{t g}"; break;
    default: rule = "(m t, t n, g) -> (g m n) whole{t g} local{t g}"; break;
  }
  return FactorsFromText(rule, args.operands(), results);
}

Work GroupedMmWork(const OpArgs& args, const Types& results) {
  // Every row of a grouped operand takes part in exactly one product.
  bool inner = args[0].rank() == 2 && args[1].rank() == 2;
  int64_t k = BoundedProduct(args, {args.dims(0).back()});
  int64_t outputs = inner ? BoundedProduct(args, {args.dims(0)[0], args.dims(1)[1]})
                          : BoundedElements(args, results[0]);
  int64_t flops = 0;
  if (__builtin_mul_overflow(2 * k, outputs, &flops)) flops = INT64_MAX;
  return WorkOf(args, results, flops);
}

constexpr OpDef Matmul(std::string_view schema, ShapeFn shape, std::string_view rule,
                       std::string_view example) {
  return {.schema = schema,
          .shape = shape,
          .factors = {.text = rule},
          .work = MatmulWork,
          .example = example};
}
constexpr std::string_view kMm = "(m k, k n) -> (m n) reduce{k} linear{0|1}";
constexpr std::string_view kBmm = "(b m k, b k n) -> (b m n) reduce{k} linear{0|1}";

}  // namespace

HEDDLE_DEFINE_OP(mm)
Matmul("aten::mm(Tensor self, Tensor mat2) -> Tensor", MmShape, kMm, "(bf16[8,16], bf16[16,4])");
HEDDLE_DEFINE_OP(mm_dtype)
Matmul("aten::mm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor", MmShape, kMm,
       "(bf16[8,16], bf16[16,4], out_dtype=f32)");
HEDDLE_DEFINE_OP(bmm)
Matmul("aten::bmm(Tensor self, Tensor mat2) -> Tensor", BmmShape, kBmm,
       "(f32[3,8,16], f32[3,16,4])");
HEDDLE_DEFINE_OP(bmm_dtype)
Matmul("aten::bmm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor", BmmShape, kBmm,
       "(bf16[3,8,16], bf16[3,16,4], out_dtype=f32)");
HEDDLE_DEFINE_OP(addmm){
    .schema =
        "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> "
        "Tensor",
    .shape = AddmmShape,
    .factors = {.compute = AddmmFactors, .linear = "0+1|0+2"},
    .work = MatmulWork,
    .example = "(f32[4], f32[8,16], f32[16,4], alpha=0.5)",
};
HEDDLE_DEFINE_OP(baddbmm){
    .schema =
        "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar "
        "alpha=1) -> Tensor",
    .shape = BaddbmmShape,
    .factors = {.compute = AddmmFactors, .linear = "0+1|0+2"},
    .work = MatmulWork,
    .example = "(f32[3,8,4], f32[3,8,16], f32[3,16,4])",
};
HEDDLE_DEFINE_OP(einsum){
    .schema = "aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
    .shape = EinsumShape,
    .factors = {.compute = EinsumFactors},
    .work = EinsumWork,
    .example = "([f32[2,3,8], f32[8,4]], equation=\"bsk,kn->bsn\")",
};
HEDDLE_DEFINE_OP(_grouped_mm){
    .schema =
        "aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, "
        "ScalarType? out_dtype=None) -> Tensor",
    .shape = GroupedMmShape,
    .factors = {.compute = GroupedMmFactors, .linear = "0|1"},
    .work = GroupedMmWork,
    .example = "(bf16[32,16], bf16[2,16,8], offs=i32[2] rising 32)",
};

}  // namespace heddle
