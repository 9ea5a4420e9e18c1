#include "heddle/run/capture/recorder.h"

#include <algorithm>

#include <ATen/SequenceNumber.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/function.h>

#include "heddle/core/ops/ops.h"
#include "heddle/run/aten/attr.h"
#include "heddle/run/aten/call.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/aten/error_message.h"
#include "heddle/run/capture/scope.h"

namespace heddle::run {
namespace {

thread_local Recorder* active_recorder = nullptr;

at::Tensor MetaOf(const at::Tensor& tensor) {
  if (const TracedImpl* traced = AsTraced(tensor)) return traced->meta();
  // A constant from outside the capture: keeps the shape, drops the data.
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
}

// Replaces traced tensors and devices by meta tensors and the meta device.
c10::IValue ToMeta(const c10::IValue& value) {
  if (value.isTensor())
    return value.toTensor().defined() ? c10::IValue(MetaOf(value.toTensor())) : value;
  if (value.isDevice()) return c10::IValue(c10::Device(c10::kMeta));
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(MetaOf(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
      list.push_back(t && t->defined() ? std::optional(MetaOf(*t)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// Returns the name of an op: `aten.add_.Scalar` for `aten::add_.Scalar`.
std::string NameOf(const c10::FunctionSchema& schema) {
  std::string name = schema.name();
  name.replace(name.find("::"), 2, ".");
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  return name;
}

// Returns a short name for results: `flash_attention` for
// `aten._scaled_dot_product_flash_attention.overload`.
std::string_view ResultName(std::string_view op) {
  op.remove_prefix(op.find('.') + 1);
  op = op.substr(0, op.find('.'));
  op.remove_prefix(std::min(op.find_first_not_of('_'), op.size()));
  constexpr std::string_view kAttention = "scaled_dot_product_";
  if (op.starts_with(kAttention)) op.remove_prefix(kAttention.size());
  return op;
}

// Returns the functional variant of an in-place op, which has its name without the last underscore.
std::optional<c10::OperatorHandle> FunctionalTwin(const c10::FunctionSchema& schema) {
  std::string name = schema.name();
  if (!name.ends_with('_')) return std::nullopt;
  name.pop_back();
  // `zero` has no functional variant that is correct for views, so `zeros_like` replaces it.
  if (name == "aten::zero") name = "aten::zeros_like";
  return c10::Dispatcher::singleton().findSchema({name, schema.overload_name()});
}

}  // namespace

Recorder::Active::Active(Recorder& recorder)
    : previous_(std::exchange(active_recorder, &recorder)) {}
Recorder::Active::~Active() { active_recorder = previous_; }
Recorder* Recorder::current() { return active_recorder; }

template <typename... Args>
void Recorder::Stop(Diag kind, fmt::format_string<Args...> format, Args&&... args) {
  Diagnostic diagnostic = MakeDiagnostic(kind, format, std::forward<Args>(args)...);
  std::string_view scope = graph_.scope_name(CurrentScopeId());
  diagnostic.message +=
      fmt::format("; in {} of {}", Name(phase_), scope.empty() ? "the root" : std::string(scope));
  diagnostics_.push_back(std::move(diagnostic));
  throw CaptureStopped();
}

at::Tensor Recorder::AddInput(Input input, DType dtype, std::span<const int64_t> shape,
                              const std::string& name, Space space) {
  ValueId value =
      graph_.AddInput(std::move(input), graph_.types().Tensor(dtype, shape, space), name);
  at::Tensor meta = at::empty(c10::IntArrayRef(shape.data(), shape.size()),
                              at::TensorOptions().dtype(ToScalarType(dtype)).device(c10::kMeta));
  auto group = std::make_shared<AliasGroup>();
  group->input = value;
  return MakeTraced(std::move(meta), value, std::move(group));
}

Recorder::OpInfo& Recorder::InfoOf(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto [at, added] = infos_.try_emplace(&schema);
  OpInfo& info = at->second;
  if (!added) return info;
  info.name = NameOf(schema);
  OpId id = graph_.ops().Find(info.name);
  // Ops in our own namespace that the table lacks replace ATen's ops of the same name.
  if (!id && info.name.starts_with("heddle.")) {
    info.name.replace(0, 6, "aten");
    id = graph_.ops().Find(info.name);
  }
  if (id) info.op = id;
  for (const c10::Argument& arg : schema.arguments()) {
    info.kinds.push_back(KindOf(arg));
    info.in_place |= arg.alias_info() != nullptr && arg.alias_info()->isWrite();
  }
  for (const c10::Argument& result : schema.returns())
    info.is_view |= result.alias_info() != nullptr;
  if (info.in_place) info.functional = FunctionalTwin(schema);
  // The meta kernel of _grouped_mm rejects types that ATen's CPU kernel lacks. Our shape rule does
  // not.
  info.meta_works =
      op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta) && info.op != op::_grouped_mm;
  return info;
}

ScopeId Recorder::CurrentScopeId() {
  if (phase_ != Phase::kBackward) {
    ScopeId scope = graph_.InternScope(CurrentScope());
    if (phase_ == Phase::kForward) {
      // An autograd node takes its sequence number just before its forward op is recorded. Ops
      // without an autograd node take none, and must not overwrite the scope of the op before them.
      uint64_t next = at::sequence_number::peek();
      if (next > 0) scope_of_sequence_.try_emplace(next - 1, scope);
    }
    return scope;
  }
  // Autograd sums gradients between nodes. These sums belong to the node that ran last.
  if (auto node = torch::autograd::get_current_node()) {
    auto found = scope_of_sequence_.find(node->sequence_nr());
    if (found != scope_of_sequence_.end()) last_backward_scope_ = found->second;
  }
  return last_backward_scope_;
}

void Recorder::Call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  OpInfo& info = InfoOf(op);
  if (info.in_place) {
    CallInPlace(info, op, stack);
    return;
  }
  const c10::FunctionSchema& schema = op.schema();
  size_t count = schema.arguments().size();
  std::vector<c10::IValue> arguments(
      std::make_move_iterator(stack.end() - static_cast<ptrdiff_t>(count)),
      std::make_move_iterator(stack.end()));
  stack.resize(stack.size() - count);
  ReadArguments(info, schema, arguments);
  torch::jit::Stack inferred = Infer(info, op, arguments);
  PushResults(info, schema, stack, arguments, std::move(inferred));
}

void Recorder::BeginBackward(const at::Tensor& loss) {
  NodeId producer = graph_[ValueOf(loss)].producer;
  if (producer) last_backward_scope_ = graph_[producer].scope;
  phase_ = Phase::kBackward;
}

ValueId Recorder::ValueOf(const at::Tensor& tensor) { return Operand(tensor, "the step"); }

ValueId Recorder::Operand(const at::Tensor& tensor, std::string_view op) {
  if (!tensor.defined()) return ValueId();
  const TracedImpl* traced = AsTraced(tensor);
  if (traced == nullptr) return Constant(tensor, op);
  if (traced->stale()) {
    Stop(Diag::kCaptureAlias, "{} reads `%{}` after another view wrote to its storage", op,
         graph_.name(traced->value()));
  }
  return traced->value();
}

// A tensor without dimensions is a number, and becomes an op. A larger tensor would hide data in
// the graph.
ValueId Recorder::Constant(const at::Tensor& tensor, std::string_view op) {
  if (tensor.dim() != 0 || tensor.is_meta()) {
    Stop(Diag::kCaptureConstant,
         "{} reads a tensor of {} elements that is neither an input nor computed from one", op,
         tensor.numel());
  }
  Result<DType> dtype = FromScalarType(tensor.scalar_type());
  if (!dtype.ok()) Stop(Diag::kCaptureConstant, "{}: {}", op, dtype.diagnostics()[0].message);
  Attrs attrs;
  attrs.Set("s", *FromIValue(c10::IValue(tensor.item()), ArgKind::kScalar));
  attrs.Set("dtype", *dtype);
  std::string name = graph_.FreshName("scalar");
  ResultSpec result{.type = graph_.types().Tensor(*dtype, {}), .name = name};
  NodeSpec spec;
  spec.op = op::scalar_tensor;
  spec.attrs = graph_.InternAttrs(attrs);
  spec.results = {&result, 1};
  spec.scope = CurrentScopeId();
  spec.phase = phase_;
  return graph_[graph_.Append(spec)].first_result;
}

void Recorder::ReadTensors(const OpInfo& info, const c10::IValue& value, ArgKind kind,
                           std::string_view name) {
  // Our table marks some tensors as optional that ATen requires, and gives some lists a fixed
  // length.
  const Arg* arg = info.op == kOpaqueOp ? nullptr : graph_.ops()[info.op].schema.Find(name);
  if (arg != nullptr) kind = arg->kind;
  auto operand = [&](const at::Tensor& tensor) {
    operand_metas_.push_back(tensor.defined() ? MetaOf(tensor) : at::Tensor());
    return Operand(tensor, info.name);
  };
  if (!IsListOperand(kind)) {
    at::Tensor tensor = value.isTensor() ? value.toTensor() : at::Tensor();
    ValueId id = operand(tensor);
    if (kind == ArgKind::kTensor) {
      builder_.AddTensor(id);
    } else if (id) {
      builder_.AddTensor(id, name);
    }
    return;
  }
  std::vector<ValueId> list;
  if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
      list.push_back(operand(t.value_or(at::Tensor())));
  } else {
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(operand(t));
  }
  if (kind != ArgKind::kTensors) {
    builder_.AddTensors(list);
    return;
  }
  for (ValueId id : list) builder_.AddTensor(id);
}

void Recorder::ReadArguments(const OpInfo& info, const c10::FunctionSchema& schema,
                             std::span<const c10::IValue> arguments) {
  operand_metas_.clear();
  bool opaque = info.op == kOpaqueOp;
  if (opaque) {
    builder_.BeginOpaque(info.name);
  } else {
    builder_.Begin(graph_.ops()[info.op]);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    ArgKind kind = info.kinds[i];
    const c10::Argument& argument = schema.arguments()[i];
    if (IsOperand(kind)) {
      ReadTensors(info, value, kind, argument.name());
    } else if (kind != ArgKind::kAmbient) {
      // The builder drops the defaults that our table of ops has.
      bool known = !opaque && graph_.ops()[info.op].schema.Find(argument.name()) != nullptr;
      if (!known && argument.default_value() && *argument.default_value() == value) continue;
      Result<AttrValue> attr = FromIValue(value, kind);
      if (!attr.ok())
        Stop(attr.diagnostics()[0].kind, "{}: `{}`: {}", info.name, argument.name(),
             attr.diagnostics()[0].message);
      builder_.AddAttr(argument.name(), *std::move(attr));
    }
  }
  if (std::optional<CallBuilder::Mistake> mistake = builder_.Finish())
    Stop(mistake->diagnostic.kind, "{}", mistake->diagnostic.message);
  operands_.assign(builder_.operands().begin(), builder_.operands().end());
  attrs_ = builder_.attrs();
}

torch::jit::Stack Recorder::Infer(OpInfo& info, const c10::OperatorHandle& op,
                                  std::span<const c10::IValue> arguments) {
  if (info.meta_works) {
    torch::jit::Stack stack;
    stack.reserve(arguments.size());
    for (const c10::IValue& value : arguments) stack.push_back(ToMeta(value));
    try {
      op.callBoxed(stack);
      return stack;
    } catch (const c10::NotImplementedError&) {
      // Many ops have meta kernels in Python only.
      info.meta_works = false;
    } catch (const std::exception& error) {
      Stop(Diag::kCaptureOp, "{}: {}", info.name, AtenErrorMessage(error));
    }
  }
  return InferByRule(info, op.schema());
}

torch::jit::Stack Recorder::InferByRule(const OpInfo& info, const c10::FunctionSchema& schema) {
  if (info.op == kOpaqueOp) {
    Stop(Diag::kCaptureOp, "{} has neither a shape rule here nor a kernel for tensors without data",
         info.name);
  }
  std::vector<Type> types = OperandTypes(graph_, operands_);
  OpArgs args(graph_.ops()[info.op], attrs_, mesh_, graph_.types().symbols(), std::move(types));
  Result<Types> results = InferTypes(args);
  if (!results.ok())
    Stop(results.diagnostics()[0].kind, "{}: {}", info.name, results.diagnostics()[0].message);
  torch::jit::Stack stack;
  size_t next = 0;
  size_t lists = 0;
  for (const c10::Argument& result : schema.returns()) {
    switch (result.type()->kind()) {
      case c10::TypeKind::TensorType: stack.emplace_back(EmptyLike((*results)[next++])); break;
      case c10::TypeKind::ListType: {
        // A single list contains all results. Several lists are as long as the list arguments, in
        // order.
        size_t count = schema.returns().size() == 1 ? results->size() : attrs_.list_sizes[lists++];
        c10::List<at::Tensor> list;
        for (size_t i = 0; i < count; ++i) list.push_back(EmptyLike((*results)[next++]));
        stack.emplace_back(std::move(list));
        break;
      }
      default:
        // The sequence lengths, which attention kernels pass to their backward.
        stack.emplace_back(operand_metas_[result.name() == "max_q" ? 0 : 1].size(2));
    }
  }
  return stack;
}

// Returns a meta tensor of this type. Kernels give a result the strides of the operand that has its
// shape.
at::Tensor Recorder::EmptyLike(const Type& type) const {
  if (type.is_none()) return at::Tensor();
  at::TensorOptions options =
      at::TensorOptions().dtype(ToScalarType(type.dtype)).device(c10::kMeta);
  for (const at::Tensor& operand : operand_metas_) {
    bool like = operand.defined() && operand.sizes() == c10::IntArrayRef(type.dims) &&
                operand.is_non_overlapping_and_dense();
    if (like) return at::empty_strided(type.dims, operand.strides(), options);
  }
  return at::empty(type.dims, options);
}

TypeId Recorder::TypeOf(const at::Tensor& meta, std::string_view op) {
  if (!meta.defined()) return TypeTable::kNoneType;
  Result<DType> dtype = FromScalarType(meta.scalar_type());
  if (!dtype.ok()) Stop(Diag::kBadType, "{}: {}", op, dtype.diagnostics()[0].message);
  std::span<const Dim> dims(meta.sizes().data(), meta.sizes().size());
  if (!CheckedBytes(graph_.types().symbols(), dims, *dtype))
    Stop(Diag::kSizeOverflow, "{}: the bytes of a result exceed 2^63 - 1", op);
  return graph_.types().Tensor(*dtype, dims);
}

NodeId Recorder::Append(const OpInfo& info, std::span<const TypeId> types) {
  std::string_view name = ResultName(info.name);
  // Writes the inferred shape into the attributes: a pass that changes the shape must find all of
  // it.
  std::string_view shape_attr = graph_.ops()[info.op].def->shape_attr;
  if (!shape_attr.empty()) {
    std::span<const Dim> dims = graph_.types().dims(types[0]);
    attrs_.Set(shape_attr, std::vector<int64_t>(dims.begin(), dims.end()));
  }
  std::vector<ResultSpec> results;
  results.reserve(types.size());
  for (TypeId type : types) results.push_back({.type = type, .name = name});
  NodeSpec spec;
  spec.op = info.op;
  spec.operands = operands_;
  bool plain = attrs_.list.empty() && attrs_.list_sizes.empty() && attrs_.opaque_op.empty();
  spec.attrs = plain ? AttrsTable::kEmpty : graph_.InternAttrs(attrs_);
  spec.results = results;
  spec.scope = CurrentScopeId();
  spec.phase = phase_;
  return graph_.Append(spec);
}

void Recorder::PushResults(const OpInfo& info, const c10::FunctionSchema& schema,
                           torch::jit::Stack& stack, std::span<const c10::IValue> arguments,
                           torch::jit::Stack inferred) {
  std::vector<TypeId> types;
  for (const c10::IValue& value : inferred) {
    if (value.isTensor()) types.push_back(TypeOf(value.toTensor(), info.name));
    if (value.isNone()) types.push_back(TypeTable::kNoneType);
    if (!value.isTensorList()) continue;
    for (const at::Tensor& t : value.toTensorVector()) types.push_back(TypeOf(t, info.name));
  }
  NodeId node = Append(info, types);
  IdRange<ValueId> results = graph_.results(node);
  size_t next = 0;
  auto wrap = [&](const at::Tensor& meta) {
    ValueId value = results[next++];
    if (!meta.defined()) return at::Tensor();
    std::shared_ptr<AliasGroup> group;
    const TracedImpl* base =
        info.is_view && arguments[0].isTensor() ? AsTraced(arguments[0].toTensor()) : nullptr;
    group = base != nullptr ? base->group() : std::make_shared<AliasGroup>();
    return MakeTraced(meta, value, std::move(group));
  };
  for (size_t i = 0; i < inferred.size(); ++i) {
    const c10::IValue& value = inferred[i];
    if (value.isTensor()) {
      stack.emplace_back(wrap(value.toTensor()));
    } else if (value.isNone() && schema.returns()[i].type()->kind() == c10::TypeKind::TensorType) {
      stack.emplace_back(wrap(at::Tensor()));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(wrap(t));
      stack.emplace_back(std::move(list));
    } else {
      stack.push_back(value);
    }
  }
}

// `x.add_(y)` on a tensor of the graph becomes `x' = add(x, y)`, and the tensor then refers to x'.
void Recorder::CallInPlace(OpInfo& info, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  size_t count = schema.arguments().size();
  at::Tensor self = stack[stack.size() - count].isTensor() ? stack[stack.size() - count].toTensor()
                                                           : at::Tensor();
  TracedImpl* traced = self.defined() ? AsTraced(self) : nullptr;
  bool writes_self = schema.arguments()[0].alias_info() != nullptr &&
                     schema.arguments()[0].alias_info()->isWrite();
  if (traced == nullptr || !writes_self || !info.functional || schema.returns().size() != 1) {
    Stop(Diag::kCaptureInPlace, "{} writes to an argument and has no functional variant",
         info.name);
  }
  if (ValueId input = traced->group()->input) {
    Stop(Diag::kCaptureInPlace, "{} writes to input `%{}`", info.name, graph_.name(input));
  }
  size_t below = stack.size() - count;
  // Functional variants such as `zeros_like` can have fewer arguments than the op that they
  // replace.
  stack.resize(below + std::min(count, info.functional->schema().arguments().size()));
  for (size_t i = stack.size() - below; i < info.functional->schema().arguments().size(); ++i) {
    stack.push_back(
        info.functional->schema().arguments()[i].default_value().value_or(c10::IValue()));
  }
  Call(*info.functional, stack);
  at::Tensor result = stack.back().toTensor();
  stack.pop_back();
  if (result.scalar_type() != self.scalar_type()) {
    stack.emplace_back(result);
    c10::OperatorHandle cast = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "");
    for (size_t i = 1; i < cast.schema().arguments().size(); ++i)
      stack.push_back(*cast.schema().arguments()[i].default_value());
    stack[below + 1] = self.scalar_type();
    Call(cast, stack);
    result = stack.back().toTensor();
    stack.pop_back();
  }
  if (result.sizes() != self.sizes())
    Stop(Diag::kCaptureInPlace, "{} changes the shape of its operand", info.name);
  traced->Written(AsTraced(result)->value());
  stack.emplace_back(self);
}

}  // namespace heddle::run
