#include "heddle/import/foreign_ops.h"

#include <algorithm>

#include "heddle/core/base/scanner.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;
using Shape = std::optional<std::vector<Type>>;

// The types of the leading tensor arguments of the call.
std::vector<const Type*> LeadingTypes(std::span<const ForeignArg> args, const TypeOf& type_of) {
  std::vector<const Type*> types;
  for (const ForeignArg& arg : args) {
    const Type* type = arg.value.kind == Kind::kName ? type_of(arg.value) : nullptr;
    if (type == nullptr) break;
    types.push_back(type);
  }
  return types;
}

// The number of results that the program uses, from their indices.
int64_t UsedResults(std::span<const ForeignResult> results) {
  int64_t most = 0;
  for (const ForeignResult& result : results) most = std::max(most, result.index + 1);
  return most;
}

// From queries, keys and values: the result and the log-sums of its rows; also the row maxima if
// they are used.
Shape FlexAttention(const ForeignProgram& program, const ForeignCall& call, const TypeOf& type_of) {
  std::vector<const Type*> in = LeadingTypes(program.args_of(call), type_of);
  if (in.size() < 3 || in[0]->rank() < 2 || in[2]->rank() < 2) return std::nullopt;
  Type out = *in[0];
  out.dims.back() = in[2]->dims.back();
  Type rows = Type::Tensor(DType::kF32, {in[0]->dims.begin(), in[0]->dims.end() - 1});
  std::vector<Type> types = {out, rows};
  if (UsedResults(program.results_of(call)) > 2) types.push_back(rows);
  return types;
}

Shape FlexAttentionBackward(const ForeignProgram& program, const ForeignCall& call,
                            const TypeOf& type_of) {
  std::vector<const Type*> in = LeadingTypes(program.args_of(call), type_of);
  if (in.size() < 3) return std::nullopt;
  return std::vector<Type>{*in[0], *in[1], *in[2]};
}

// A user's kernel returns the tensors that it writes, by the names of its arguments.
Shape TritonKernel(const ForeignProgram& program, const ForeignCall& call, const TypeOf& type_of) {
  std::span<const ForeignArg> args = program.args_of(call);
  auto kwargs = std::ranges::find_if(
      args, [&](const ForeignArg& arg) { return program.text(arg.name) == "kwargs"; });
  if (kwargs == args.end() || kwargs->value.kind != Kind::kDict) return std::nullopt;
  std::span<const ForeignValue> items = program.items(kwargs->value);
  std::vector<Type> types;
  for (const ForeignResult& result : program.results_of(call)) {
    const Type* type = nullptr;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i].kind != Kind::kName && program.text(items[i].word) == program.text(result.key) &&
          items[i + 1].kind == Kind::kName)
        type = type_of(items[i + 1]);
    }
    if (type == nullptr) return std::nullopt;
    types.push_back(*type);
  }
  return types;
}

Shape DevicePut(const ForeignProgram& program, const ForeignCall& call, const TypeOf& type_of) {
  std::vector<const Type*> in = LeadingTypes(program.args_of(call), type_of);
  if (in.empty() || call.arg_count < 2) return std::nullopt;
  Type type = *in[0];
  const ForeignValue& device = program.args_of(call)[1].value;
  bool host =
      device.kind != Kind::kName && program.text(device.word).find("cpu") != std::string_view::npos;
  type.space = host ? Space::kHost : Space::kDevice;
  return std::vector<Type>{type};
}

Shape SameAsFirst(const ForeignProgram& program, const ForeignCall& call, const TypeOf& type_of) {
  std::vector<const Type*> in = LeadingTypes(program.args_of(call), type_of);
  if (in.empty()) return std::nullopt;
  return std::vector<Type>{*in[0]};
}

}  // namespace

Shape ForeignShape(const ForeignProgram& program, const ForeignCall& call, const TypeOf& type_of) {
  std::string_view target = program.target(call);
  if (target.ends_with(".default")) target.remove_suffix(8);
  if (target == "higher_order.flex_attention") return FlexAttention(program, call, type_of);
  if (target == "higher_order.flex_attention_backward")
    return FlexAttentionBackward(program, call, type_of);
  if (target == "higher_order.triton_kernel_wrapper_functional")
    return TritonKernel(program, call, type_of);
  if (target == "prims.device_put") return DevicePut(program, call, type_of);
  if (target == "prims.fma" || target == "_c10d_functional.broadcast")
    return SameAsFirst(program, call, type_of);
  if (target == "aten._local_scalar_dense")
    return std::vector<Type>{Type::Tensor(DType::kI64, {}, Space::kHost)};
  return std::nullopt;
}

std::string OpaqueName(std::string_view target) {
  if (target.ends_with(".default")) target.remove_suffix(8);
  bool aten = target.starts_with("aten.") || target.starts_with("prims.");
  std::string name = aten ? "" : "foreign.";
  for (char c : target) {
    bool good = (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kName) != 0;
    name += good ? c : '_';
  }
  return name;
}

bool WritesInPlace(std::string_view target) {
  if (!target.starts_with("aten.")) return false;
  target.remove_prefix(5);
  std::string_view name = target.substr(0, target.find('.'));
  return name.ends_with('_') && !name.ends_with("__");
}

bool IsAssertion(std::string_view target) {
  return target.starts_with("aten._assert") || target.starts_with("aten.sym_constrain_range");
}

bool IsComparison(std::string_view target) {
  return target == "operator.ge" || target == "operator.gt" || target == "operator.le" ||
         target == "operator.lt" || target == "operator.eq" || target == "operator.ne";
}

std::optional<int64_t> Compute(std::string_view target, const std::vector<int64_t>& numbers) {
  if (target == "torch.sym_sum" || target == "operator.add") {
    int64_t sum = 0;
    for (int64_t number : numbers) {
      if (__builtin_add_overflow(sum, number, &sum)) return std::nullopt;
    }
    return sum;
  }
  if (numbers.size() == 1 && target == "operator.neg" && numbers[0] != INT64_MIN)
    return -numbers[0];
  if (numbers.size() != 2) return std::nullopt;
  int64_t a = numbers[0];
  int64_t b = numbers[1];
  int64_t out = 0;
  if (target == "operator.sub")
    return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (target == "operator.mul")
    return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  // Python's division rounds down. The range excludes INT64_MIN, because -2^63 / -1 overflows.
  bool divides = b != 0 && (a != INT64_MIN || b != -1);
  int64_t rest = divides ? a % b : 0;
  bool down = rest != 0 && (rest < 0) != (b < 0);
  if (target == "operator.floordiv" && divides) return a / b - (down ? 1 : 0);
  if (target == "operator.mod" && divides) return rest + (down ? b : 0);
  if (target == "operator.ge") return a >= b;
  if (target == "operator.gt") return a > b;
  if (target == "operator.le") return a <= b;
  if (target == "operator.lt") return a < b;
  if (target == "operator.eq") return a == b;
  if (target == "operator.ne") return a != b;
  if (target == "torch.sym_max") return std::max(a, b);
  if (target == "torch.sym_min") return std::min(a, b);
  return std::nullopt;
}

}  // namespace heddle
