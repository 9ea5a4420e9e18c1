#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/import/graph_builder_impl.h"
#include "heddle/import/read/torch_types.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

bool IsNumber(const ForeignValue& value) {
  return value.kind == Kind::kInt || value.kind == Kind::kFloat || value.kind == Kind::kBool;
}

std::optional<AttrValue> WordAttr(std::string_view word) {
  if (std::optional<DType> dtype = ParseTorchDType(word)) return *dtype;
  if (word == "torch.contiguous_format") return MemoryFormat::kContiguous;
  if (word == "torch.preserve_format") return MemoryFormat::kPreserve;
  if (word == "torch.channels_last") return MemoryFormat::kChannelsLast;
  return std::nullopt;
}

}  // namespace

OpId GraphBuilder::WithNumber(const ForeignCall& call, OpId op) const {
  const std::vector<Arg>& args = ops_[op].schema.args;
  std::span<const ForeignArg> given = program_.args_of(call);
  for (size_t k = 0; k < given.size(); ++k) {
    const ForeignValue& value = given[k].value;
    const Binding* binding = Find(value);
    bool number =
        IsNumber(value) || (binding != nullptr && binding->kind == Binding::Kind::kNumber);
    auto by_name = std::ranges::find(args, Text(given[k].name), &Arg::name);
    size_t i = given[k].name ? static_cast<size_t>(by_name - args.begin()) : k;
    if (i >= args.size() || args[i].kind != ArgKind::kTensor || !number) continue;
    std::string name(ops_[op].name());
    auto replace = [&](std::string_view from, std::string_view to) {
      if (!name.ends_with(from)) return OpId();
      return ops_.Find(name.substr(0, name.size() - from.size()).append(to));
    };
    if (name == "aten.where.self")
      return ops_.Find(i == 1 ? "aten.where.ScalarSelf" : "aten.where.ScalarOther");
    if (i != 1) return OpId();
    OpId other = replace(".Tensor", ".Scalar");
    return other ? other : replace(".Tensor_mode", ".Scalar_mode");
  }
  return OpId();
}

Status GraphBuilder::AddTableCall(const ForeignCall& call, OpId op) {
  if (OpId other = WithNumber(call, op)) op = other;
  const Op& facts = ops_[op];
  builder_->Begin(facts);
  size_t position = 0;
  for (const ForeignArg& given : program_.args_of(call)) {
    const Arg* arg = nullptr;
    if (given.name) {
      arg = facts.schema.Find(Text(given.name));
    } else if (position < facts.schema.args.size()) {
      arg = &facts.schema.args[position++];
    }
    if (arg == nullptr)
      return Fail(
          call, Diag::kUnknownAttr, "{} has no argument {}", facts.name(),
          given.name ? fmt::format("`{}`", Text(given.name)) : fmt::format("{}", position + 1));
    HEDDLE_RETURN_IF_ERROR(AddArgument(call, *arg, given.value));
  }
  HEDDLE_RETURN_IF_ERROR(TakeOperands(call));
  AttrsId attrs = graph_->InternAttrs(builder_->attrs());
  Result<std::vector<TypeId>> types = InferredTypes(op, attrs);
  if (types.ok()) return Finish(call, op, attrs, *types);
  const Diagnostic& why = types.diagnostics()[0];
  if (std::optional<Type> known = TypeInSpite(call, why.kind)) {
    ++targets_[call.target].refused;
    HEDDLE_RETURN_IF_ERROR(BuildOpaque(call, fmt::format("foreign.{}", facts.name())));
    return FinishOpaque(call, InternTypes({&*known, 1}));
  }
  return Fail(call, why.kind, "{}: {}", facts.name(), why.message);
}

Status GraphBuilder::TakeOperands(const ForeignCall& call) {
  if (std::optional<CallBuilder::Mistake> mistake = builder_->Finish())
    return Failure{{At(call, std::move(mistake->diagnostic))}};
  operands_.assign(builder_->operands().begin(), builder_->operands().end());
  return Done{};
}

Result<std::vector<TypeId>> GraphBuilder::InferredTypes(OpId op, AttrsId attrs) {
  key_.Clear();
  key_.Add(uint64_t{op.index()} << 32 | attrs.index());
  for (ValueId v : operands_) key_.Add(v ? graph_->type(v).index() : UINT32_MAX);
  if (const std::vector<TypeId>* known = known_types_.Find(key_)) return *known;
  OpArgs args(ops_[op], builder_->attrs(), imported_.module.mesh, graph_->types().symbols(),
              OperandTypes(*graph_, operands_));
  HEDDLE_TRY(Types types, InferTypes(args));
  return known_types_.Add(key_, InternTypes(types));
}

// The shape rule rejects positions given as a mask, and example sizes may contradict each other. A
// write into a tensor keeps its type in both cases.
std::optional<Type> GraphBuilder::TypeInSpite(const ForeignCall& call, Diag refusal) const {
  std::string_view target = program_.target(call);
  bool writes = target == "aten.index_put.default" || target == "aten._unsafe_index_put.default" ||
                target == "aten.slice_scatter.default";
  if (!writes || (refusal != Diag::kDTypeMismatch && !has_hints_)) return std::nullopt;
  return graph_->types()[graph_->type(operands_[0])];
}

Status GraphBuilder::AddArgument(const ForeignCall& call, const Arg& arg,
                                 const ForeignValue& value) {
  if (arg.kind == ArgKind::kAmbient) return Done{};
  if (!IsOperand(arg.kind)) {
    std::optional<AttrValue> attr = ToAttr(value);
    if (!attr)
      return Fail(call, Diag::kAttrKind, "`{}` of {} is {}, expected {}", arg.name,
                  program_.target(call), value.word ? Text(value) : "something else",
                  Describe(arg.kind));
    // An argument that keeps its default is not stored.
    if (std::holds_alternative<std::monostate>(*attr) && !arg.optional) return Done{};
    builder_->AddAttr(arg.name, *std::move(attr));
    return Done{};
  }
  if (IsListOperand(arg.kind)) return AddTensorList(call, arg, value);
  if (value.kind == Kind::kNone) return Done{};
  ValueId tensor;
  if (IsNumber(value)) {
    tensor = ScalarNode(call, value);
  } else {
    HEDDLE_TRY(tensor, Tensor(call, value));
  }
  builder_->AddTensor(tensor, arg.name);
  return Done{};
}

Status GraphBuilder::AddTensorList(const ForeignCall& call, const Arg& arg,
                                   const ForeignValue& value) {
  if (value.kind != Kind::kList)
    return Fail(call, Diag::kOperandKind, "`{}` of {} is not a list of tensors", arg.name,
                program_.target(call));
  std::vector<ValueId> tensors;
  for (const ForeignValue& item : program_.items(value)) {
    if (item.kind == Kind::kNone) {
      tensors.emplace_back();
      continue;
    }
    HEDDLE_TRY(ValueId tensor, Tensor(call, item));
    tensors.push_back(tensor);
  }
  builder_->AddTensors(tensors, arg.name);
  return Done{};
}

ValueId GraphBuilder::ScalarNode(const ForeignCall& call, const ForeignValue& value) {
  std::optional<int64_t> number = Number(value);
  Attrs attrs;
  attrs.Set("s", number ? AttrValue(*number) : AttrValue(value.number));
  attrs.Set("dtype", value.kind == Kind::kBool ? DType::kBool : number ? DType::kI64 : DType::kF32);
  attrs = CanonicalAttrs(ops_[op::scalar_tensor], attrs);
  DType dtype = value.kind == Kind::kBool ? DType::kBool : number ? DType::kI64 : DType::kF32;
  TypeId type = graph_->types().Tensor(dtype, {});
  names_.assign(1, made_names_.emplace_back(fmt::format("{}.number", NameOf(call))));
  NodeId node = Append(call, op::scalar_tensor, {}, graph_->InternAttrs(attrs), {&type, 1});
  return graph_->results(node)[0];
}

std::optional<AttrValue> GraphBuilder::ToAttr(const ForeignValue& value) const {
  switch (value.kind) {
    case Kind::kNone: return AttrValue();
    case Kind::kBool: return value.boolean;
    case Kind::kInt: return value.integer;
    case Kind::kFloat: return value.number;
    case Kind::kString: return std::string(Text(value));
    case Kind::kWord: return WordAttr(Text(value));
    case Kind::kDict: return std::nullopt;
    case Kind::kName: {
      std::optional<int64_t> number = Number(value);
      return number ? std::optional<AttrValue>(*number) : std::nullopt;
    }
    case Kind::kList: break;
  }
  std::span<const ForeignValue> items = program_.items(value);
  auto all = [&](Kind kind) {
    return !items.empty() &&
           std::ranges::all_of(items, [&](const ForeignValue& v) { return v.kind == kind; });
  };
  if (all(Kind::kBool)) {
    std::vector<bool> flags;
    for (const ForeignValue& item : items) flags.push_back(item.boolean);
    return flags;
  }
  if (all(Kind::kString)) {
    std::vector<std::string> names;
    for (const ForeignValue& item : items) names.emplace_back(Text(item));
    return names;
  }
  std::vector<int64_t> sizes;
  std::vector<double> numbers;
  for (const ForeignValue& item : items) {
    std::optional<int64_t> number = Number(item);
    if (!number && item.kind != Kind::kFloat) return std::nullopt;
    if (number) sizes.push_back(*number);
    numbers.push_back(number ? static_cast<double>(*number) : item.number);
  }
  if (sizes.size() == numbers.size()) return sizes;
  return numbers;
}

// `aten.copy_(input, value)`: `input` has this value at the end of the step.
Status GraphBuilder::AddCopyInto(const ForeignCall& call) {
  if (call.arg_count < 2) return Fail(call, Diag::kOperandCount, "aten.copy_ takes two tensors");
  const ForeignValue& input = program_.args_of(call)[0].value;
  HEDDLE_TRY(ValueId target, Tensor(call, input));
  auto earlier = update_of_.find(target.index());
  bool again = earlier != update_of_.end();
  if (graph_->operator[](target).producer && !again)
    return Fail(call, Diag::kCaptureInPlace,
                "`{}` is written in place and is not an input; functionalize the graph first",
                Text(input));
  HEDDLE_RETURN_IF_ERROR(AddTableCall(call, op::copy));
  ValueId written = graph_->results(NodeId(graph_->node_count() - 1))[0];
  BindTensor(input.word, written);
  size_t entry = again ? earlier->second : updates_.size();
  if (!again) updates_.emplace_back(target, written);
  updates_[entry].second = written;
  update_of_[written.index()] = entry;
  return Done{};
}

}  // namespace heddle
