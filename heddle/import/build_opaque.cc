#include <algorithm>

#include "heddle/core/base/scanner.h"
#include "heddle/core/base/text.h"
#include "heddle/import/graph_builder_impl.h"

// Calls of ops outside the table, and of functions of sizes, which are numbers here.

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

// Names of opaque arguments by position, for any number of them.
constexpr std::string_view kPositions[] = {"a0",  "a1",  "a2",  "a3",  "a4",  "a5",  "a6",  "a7",
                                           "a8",  "a9",  "a10", "a11", "a12", "a13", "a14", "a15",
                                           "a16", "a17", "a18", "a19", "a20", "a21", "a22", "a23"};

// Exceeds the number of results of any op.
constexpr int64_t kMostResults = 1 << 16;

// Whether the text of a graph can name an attribute so: a word that does not read as something
// else.
bool IsAttrName(std::string_view name) {
  return !name.empty() && name != "none" && std::ranges::all_of(name, [](char c) {
    return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kWord) != 0;
  });
}

}  // namespace

void GraphBuilder::CollectTensors(const ForeignValue& value, std::vector<ValueId>& tensors) const {
  if (const Binding* binding = Find(value)) {
    if (binding->value) tensors.push_back(binding->value);
    return;
  }
  if (value.kind != Kind::kList && value.kind != Kind::kDict) return;
  for (const ForeignValue& item : program_.items(value)) CollectTensors(item, tensors);
}

// Adds tensors by position or name, and the tensors anywhere in lists. Adds attributes if a graph
// can store them. `leads`: only tensors by position were added so far; these need no names. Returns
// whether that is still so.
bool GraphBuilder::AddOpaqueArgument(const ForeignArg& arg, size_t position, bool leads) {
  std::string_view given = Text(arg.name);
  std::string_view name = IsAttrName(given) ? given : std::string_view();
  if (name.empty() && position < std::size(kPositions)) name = kPositions[position];
  leads = leads && given.empty();
  std::string_view tensor_name = leads ? std::string_view() : name;
  const Binding* binding = Find(arg.value);
  if (binding != nullptr && binding->value) {
    builder_->AddTensor(binding->value, tensor_name);
    return leads;
  }
  std::vector<ValueId> tensors;
  CollectTensors(arg.value, tensors);
  if (!tensors.empty()) {
    builder_->AddTensors(tensors, tensor_name);
    return leads;
  }
  std::optional<AttrValue> attr = ToAttr(arg.value);
  bool said = attr && !std::holds_alternative<std::monostate>(*attr);
  if (said && !name.empty()) builder_->AddAttr(name, *std::move(attr));
  return false;
}

Status GraphBuilder::BuildOpaque(const ForeignCall& call, std::string_view name) {
  builder_->BeginOpaque(name);
  std::span<const ForeignArg> args = program_.args_of(call);
  bool leads = true;
  for (size_t i = 0; i < args.size(); ++i) leads = AddOpaqueArgument(args[i], i, leads);
  return TakeOperands(call);
}

Status GraphBuilder::FinishOpaque(const ForeignCall& call, std::span<const TypeId> types) {
  return Finish(call, kOpaqueOp, graph_->InternAttrs(builder_->attrs()), types);
}

// The types that the file or ForeignShape states; nullopt if neither does.
std::optional<std::vector<Type>> GraphBuilder::OpaqueTypes(const ForeignCall& call) {
  if (targets_[call.target].asserts) return std::vector<Type>();
  std::deque<Type> known;
  TypeOf type_of = [&](const ForeignValue& value) -> const Type* {
    const Binding* binding = Find(value);
    if (binding == nullptr || binding->kind != Binding::Kind::kTensor) return nullptr;
    return &known.emplace_back(graph_->types()[graph_->type(binding->value)]);
  };
  std::optional<std::vector<Type>> types = ForeignShape(program_, call, type_of);
  if (types) return types;
  if (!call.several) return call.stated == nullptr ? types : std::vector<Type>{*call.stated};
  // The types that the file states. Results without a use have none.
  types.emplace();
  for (const ForeignResult& result : program_.results_of(call)) {
    if (result.index < 0 || result.index >= kMostResults || result.stated == nullptr)
      return std::nullopt;
    auto index = static_cast<size_t>(result.index);
    if (types->size() <= index) types->resize(index + 1);
    (*types)[index] = *result.stated;
  }
  return types;
}

Status GraphBuilder::AddOpaqueCall(const ForeignCall& call) {
  Target& target = targets_[call.target];
  if (target.writes_in_place)
    return Fail(call, Diag::kCaptureInPlace,
                "`{}` overwrites its operand; functionalize the graph first",
                program_.target(call));
  // Wait for all operands in flight first, because an opaque op cannot wait for them.
  for (const ForeignArg& arg : program_.args_of(call)) {
    const Binding* binding = Find(arg.value);
    if (binding == nullptr || binding->kind != Binding::Kind::kLaunched) continue;
    HEDDLE_RETURN_IF_ERROR(Tensor(call, arg.value));
  }
  std::optional<std::vector<Type>> types = OpaqueTypes(call);
  if (!types)
    return Fail(call, Diag::kMissingType,
                "`{}` is not in the op table, and the file does not state its result types",
                program_.target(call));
  HEDDLE_RETURN_IF_ERROR(BuildOpaque(call, target.opaque_name));
  HEDDLE_RETURN_IF_ERROR(FinishOpaque(call, InternTypes(*types)));
  ++target.opaque;
  if (target.reads_size) {
    BindNumber(call.name, options_.hint);
    ++hinted_;
    has_hints_ = true;
  }
  return Done{};
}

// Arithmetic with sizes. If sizes come from tensors, a node keeps the dependence.
Status GraphBuilder::AddArithmetic(const ForeignCall& call) {
  std::vector<int64_t> numbers;
  std::vector<ForeignValue> given;
  for (const ForeignArg& arg : program_.args_of(call)) {
    if (arg.value.kind == Kind::kList) {
      for (const ForeignValue& item : program_.items(arg.value)) given.push_back(item);
    } else {
      given.push_back(arg.value);
    }
  }
  bool computed = false;
  for (const ForeignValue& value : given) {
    std::optional<int64_t> number = Number(value);
    if (!number)
      return Fail(call, Diag::kOperandKind, "`{}` is not a whole number",
                  value.word ? Text(value) : "an operand");
    numbers.push_back(*number);
    const Binding* binding = Find(value);
    computed |= binding != nullptr && binding->value;
  }
  std::string_view target = program_.target(call);
  std::optional<int64_t> result = Compute(target, numbers);
  if (!result)
    return Fail(call, Diag::kUnknownOp, "`{}` of these sizes has no known value", target);
  if (!computed) {
    Bind(call.name, {.kind = Binding::Kind::kNumber, .number = *result});
    return Done{};
  }
  DType dtype = IsComparison(target) ? DType::kBool : DType::kI64;
  HEDDLE_RETURN_IF_ERROR(BuildOpaque(call, targets_[call.target].opaque_name));
  TypeId type = graph_->types().Tensor(dtype, {}, Space::kHost);
  HEDDLE_RETURN_IF_ERROR(FinishOpaque(call, {&type, 1}));
  ++arithmetic_;
  BindNumber(call.name, *result);
  return Done{};
}

// `aten.sym_size.int(t, dim)` and similar calls, whose value is known here.
Status GraphBuilder::AddSize(const ForeignCall& call) {
  std::string_view target = program_.target(call);
  if (targets_[call.target].asserts) return AddOpaqueCall(call);
  std::span<const ForeignArg> args = program_.args_of(call);
  if (args.empty()) return Fail(call, Diag::kOperandCount, "{} has no argument", target);
  HEDDLE_TRY(ValueId tensor, Tensor(call, args[0].value));
  const TypeTable& types = graph_->types();
  TypeId type = graph_->type(tensor);
  int64_t size = 0;
  if (target.starts_with("aten.sym_numel")) {
    size = types.elements_bound(type);
  } else if (target == "aten.sym_size.int" && args.size() > 1) {
    int64_t dim = Number(args[1].value).value_or(INT64_MIN);
    auto rank = static_cast<int64_t>(types.rank(type));
    if (dim < -rank || dim >= rank)
      return Fail(call, Diag::kDimRange, "dimension {} does not exist; the tensor has {}", dim,
                  Counted(rank, "dimension"));
    size = types.symbols().Bound(types.dims(type)[static_cast<size_t>(dim < 0 ? dim + rank : dim)]);
  } else {
    return AddOpaqueCall(call);
  }
  Bind(call.name, {.kind = Binding::Kind::kNumber, .number = size});
  return Done{};
}

}  // namespace heddle
