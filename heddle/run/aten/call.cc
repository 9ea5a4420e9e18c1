#include "heddle/run/aten/call.h"

#include <algorithm>

#include "heddle/run/aten/attention_layout.h"
#include "heddle/run/aten/grouped_mm.h"
#include "heddle/run/aten/norms.h"

namespace heddle::run {

std::optional<c10::OperatorHandle> FindOperator(std::string_view name) {
  // The namespace ends at the first dot, and the overload begins after the second.
  size_t space = name.find('.');
  if (space == std::string_view::npos) return std::nullopt;
  std::string_view rest = name.substr(space + 1);
  size_t overload = rest.find('.');
  c10::OperatorName full(
      std::string(name.substr(0, space)) + "::" + std::string(rest.substr(0, overload)),
      overload == std::string_view::npos ? "" : std::string(rest.substr(overload + 1)));
  LinkOwnOperators();
  return c10::Dispatcher::singleton().findSchema(full);
}

namespace {

// One argument's operands: the argument's name, its first operand and the number of operands. A
// positional argument of an opaque op has a name like `a2`, or none.
struct Passed {
  std::string_view name;
  uint32_t operand;
  uint32_t count;
};

std::vector<Passed> PassedOperands(const Graph& graph, NodeId node) {
  std::vector<Passed> passed;
  const Attrs& attrs = graph.attrs(node);
  uint32_t at = 0;
  if (graph[node].op == kOpaqueOp) {
    for (const OpaqueSlot& slot : attrs.opaque_slots) {
      passed.push_back({slot.name, at, slot.count});
      at += slot.count;
    }
    return passed;
  }
  size_t lists = 0;
  for (const Arg& arg : graph.op(node).schema.args) {
    if (!IsOperand(arg.kind)) continue;
    uint32_t count = IsListOperand(arg.kind) ? attrs.list_sizes[lists++] : 1;
    passed.push_back({arg.name, at, count});
    at += count;
  }
  return passed;
}

// Arguments of a node by name, and those of an opaque op by name or position.
class NodeArguments {
 public:
  NodeArguments(const c10::FunctionSchema& schema, const Attrs& attrs, std::vector<Passed> passed)
      : schema_(schema), attrs_(attrs), passed_(std::move(passed)) {
    size_t required = 0;
    for (size_t i = 0; i < schema.arguments().size(); ++i) required += IsRequired(i);
    // A writer that names optional tensors passes as many others as the schema requires.
    takes_optional_ =
        static_cast<size_t>(std::ranges::count(passed_, "", &Passed::name)) > required;
  }

  // The operands of argument `i`, asked for in the order of the schema; null if it has none.
  const Passed* OperandsOf(size_t i) {
    if (const Passed* named = Named(i)) return named;
    if (!takes_optional_ && !IsRequired(i)) return nullptr;
    while (next_ < passed_.size() && !passed_[next_].name.empty()) ++next_;
    return next_ < passed_.size() ? &passed_[next_++] : nullptr;
  }
  const AttrValue* AttrOf(size_t i) const {
    const AttrValue* named = attrs_.Find(schema_.arguments()[i].name());
    return named != nullptr ? named : attrs_.Find(Position(i));
  }

 private:
  static std::string Position(size_t i) { return "a" + std::to_string(i); }
  bool IsRequired(size_t i) const {
    ArgKind kind = KindOf(schema_.arguments()[i]);
    return IsOperand(kind) && kind != ArgKind::kOptionalTensor && Named(i) == nullptr;
  }
  const Passed* Named(size_t i) const {
    for (const Passed& p : passed_) {
      if (p.name == schema_.arguments()[i].name() || p.name == Position(i)) return &p;
    }
    return nullptr;
  }

  const c10::FunctionSchema& schema_;
  const Attrs& attrs_;
  std::vector<Passed> passed_;
  size_t next_ = 0;
  bool takes_optional_ = false;
};

// Returns the in-place variant of an op: `_fused_adamw_` for `_fused_adamw`.
std::optional<c10::OperatorHandle> InPlaceTwin(const c10::OperatorHandle& op) {
  return c10::Dispatcher::singleton().findSchema(
      {op.schema().name() + "_", op.schema().overload_name()});
}

// Whether an argument is the device of the results, without a default that names a device.
bool IsDevice(const c10::Argument& arg) {
  if (arg.name() != "device") return false;
  return !arg.default_value() || !arg.default_value()->isDevice();
}

// ATen returns an operand itself if there is nothing to compute. Copies it, because a later node
// may write to one of the two in place.
void CopyAliases(std::span<const at::Tensor* const> operands, std::vector<at::Tensor>& results) {
  for (at::Tensor& result : results) {
    if (!result.defined() || !result.has_storage()) continue;
    for (const at::Tensor* operand : operands) {
      if (!operand->defined() || !operand->has_storage() || !result.is_alias_of(*operand)) continue;
      result = result.clone();
      break;
    }
  }
}

}  // namespace

Result<AtenCall> AtenCall::Bind(const Module& module, const Graph& graph, NodeId node,
                                c10::Device device, const SizeResolver& size_of) {
  const Attrs& attrs = graph.attrs(node);
  std::string_view name =
      graph[node].op == kOpaqueOp ? std::string_view(attrs.opaque_op) : graph.op(node).name();
  std::optional<c10::OperatorHandle> op = FindOperator(name);
  if (!op) return Error(Diag::kUnknownOp, "{} is not an operator of this libtorch", name);
  Effect effect = graph.op(node).effect();
  if (effect == Effect::kUpdate) {
    op = InPlaceTwin(*op);
    if (!op) return Error(Diag::kUnknownOp, "{} has no in-place form in this libtorch", name);
  }
  AtenCall call(*op);
  call.effect_ = effect;
  call.result_count_ = graph[node].result_count;
  call.kernel_ = GroupedMmKernel(graph, node);
  if (call.kernel_ == nullptr) call.kernel_ = AttentionLayoutKernel(graph[node].op);
  const std::vector<c10::Argument>& wanted = op->schema().arguments();
  NodeArguments given(op->schema(), attrs, PassedOperands(graph, node));
  using Kind = Argument::Kind;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const c10::Argument& arg = wanted[i];
    Argument& argument = call.arguments_.emplace_back();
    ArgKind kind = KindOf(arg);
    if (IsOperand(kind)) {
      const Passed* found = given.OperandsOf(i);
      if (found == nullptr) continue;
      argument.operand = found->operand;
      argument.count = found->count;
      argument.kind = kind == ArgKind::kOptionalTensorList ? Kind::kOptionalList
                      : IsListOperand(kind)                ? Kind::kList
                      : kind == ArgKind::kOptionalTensor   ? Kind::kOptional
                                                           : Kind::kTensor;
      continue;
    }
    if (const AttrValue* value = given.AttrOf(i)) {
      HEDDLE_TRY(c10::IValue converted,
                 ToIValue(*value, module.mesh, graph.types().symbols(), size_of));
      // An empty list does not tell whether it holds integers or floats, and ATen distinguishes
      // them.
      bool empty_floats = kind == ArgKind::kFloatList && converted.isIntList();
      argument.constant = empty_floats ? c10::IValue(std::vector<double>()) : std::move(converted);
    } else if (IsDevice(arg) && graph.operands(node).empty()) {
      argument.constant = c10::IValue(device);
    } else if (arg.default_value()) {
      argument.constant = *arg.default_value();
    }
  }
  return call;
}

void AtenCall::Push(const Argument& argument, std::span<const at::Tensor* const> operands,
                    torch::jit::Stack& stack) const {
  std::span<const at::Tensor* const> given = operands.subspan(argument.operand, argument.count);
  switch (argument.kind) {
    case Argument::Kind::kConstant: stack.push_back(argument.constant); return;
    case Argument::Kind::kTensor: stack.emplace_back(*given[0]); return;
    case Argument::Kind::kOptional:
      given[0]->defined() ? stack.emplace_back(*given[0]) : stack.emplace_back();
      return;
    case Argument::Kind::kList: {
      c10::List<at::Tensor> list;
      list.reserve(given.size());
      for (const at::Tensor* t : given) list.push_back(*t);
      stack.emplace_back(std::move(list));
      return;
    }
    case Argument::Kind::kOptionalList: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(given.size());
      for (const at::Tensor* t : given)
        list.push_back(t->defined() ? std::optional(*t) : std::nullopt);
      stack.emplace_back(std::move(list));
      return;
    }
  }
}

void AtenCall::Run(std::span<const at::Tensor* const> operands, torch::jit::Stack& stack,
                   std::vector<at::Tensor>& results) const {
  stack.clear();
  for (const Argument& argument : arguments_) Push(argument, operands, stack);
  if (kernel_ != nullptr) {
    kernel_(op_, stack);
  } else {
    op_.callBoxed(stack);
  }
  results.clear();
  if (effect_ == Effect::kUpdate) {
    for (size_t i = 0; i < result_count_; ++i) results.push_back(*operands[i]);
    stack.clear();
    return;
  }
  for (c10::IValue& value : stack) {
    if (value.isTensor()) {
      results.push_back(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) results.push_back(t);
    } else if (value.isNone()) {
      results.emplace_back();
    }
  }
  stack.clear();
  if (effect_ == Effect::kPure || effect_ == Effect::kRandom) CopyAliases(operands, results);
}

}  // namespace heddle::run
