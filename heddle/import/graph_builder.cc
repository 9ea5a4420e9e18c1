#include "heddle/import/graph_builder.h"

#include <algorithm>
#include <map>

#include "heddle/base/text.h"
#include "heddle/import/graph_builder_parts.h"
#include "heddle/ir/print.h"

namespace heddle {

using Kind = ForeignValue::Kind;

Result<Imported> BuildGraph(const ForeignProgram& program, const SourceText& source,
                            const ImportOptions& options) {
  return GraphBuilder(program, source, options).Build();
}

Result<Imported> GraphBuilder::Build() {
  if (options_.hint < 0)
    return Error(Diag::kBadChoice, "--hint is {}, expected a size", options_.hint);
  HEDDLE_TRY(groups_, GroupAxes::Make(program_, options_, imported_.remarks));
  imported_.module.view = View::kLocal;
  imported_.module.mesh = groups_.mesh();
  imported_.module.graphs.emplace_back(std::string(program_.name), ops_);
  graph_ = imported_.module.graphs.data();
  builder_.emplace(imported_.module.mesh, graph_->types().symbols());
  size_t chars = 0;
  for (const ForeignCall& call : program_.calls) {
    chars += call.name.size();
    if (CollectiveName(call.target) == "wait_tensor" && !call.args.empty())
      wait_names_.try_emplace(call.args[0].value.text, call.name);
  }
  graph_->Reserve(program_.calls.size(), chars + 64);
  bindings_.reserve(program_.statements + program_.inputs.size());
  HEDDLE_RETURN_IF_ERROR(AddInputs());
  for (const ForeignCall& call : program_.calls) HEDDLE_RETURN_IF_ERROR(AddCall(call));
  HEDDLE_RETURN_IF_ERROR(AddOutputs());
  ImportCounts& counts = imported_.counts;
  counts.placeholders = program_.inputs.size();
  counts.statements = program_.statements;
  counts.items = program_.statements_folded;
  counts.outputs = graph_->outputs().size() - updates_.size();
  if (hinted_ > 0)
    imported_.remarks.push_back(fmt::format("{} that {} read from tensors {} taken for {} (--hint)",
                                            Counted(hinted_, "size"), hinted_ == 1 ? "is" : "are",
                                            hinted_ == 1 ? "is" : "are", options_.hint));
  for (const auto& [name, count] :
       std::map<std::string_view, size_t>(refused_.begin(), refused_.end())) {
    counts.opaque += count;
    imported_.remarks.push_back(
        fmt::format("{} has {} that its shape rule does not take, a mask or sizes that contradict "
                    "each other: opaque",
                    name, Counted(count, "call")));
  }
  std::map<std::string_view, size_t> sorted(opaque_.begin(), opaque_.end());
  for (const auto& [name, count] : sorted) {
    counts.opaque += count;
    imported_.remarks.push_back(
        fmt::format("{} is not in the table of ops: {} opaque", name,
                    count == 1 ? "1 node is" : fmt::format("{} nodes are", count)));
  }
  return std::move(imported_);
}

Status GraphBuilder::AddInputs() {
  for (const ForeignInput& input : program_.inputs) {
    ForeignCall place;
    place.offset = input.offset;
    place.name = input.name;
    if (bindings_.contains(input.name))
      return Fail(place, Diag::kDuplicateName, "two inputs are called `{}`", input.name);
    if (!input.type && !input.integer)
      return Fail(place, Diag::kMissingType,
                  "the file does not say what type input `{}` has; a repro says it in `load_args`, "
                  "`print_readable` behind the name",
                  input.name);
    Type type = input.type ? *input.type : Type::Tensor(DType::kI64, {}, Space::kHost);
    ValueId value = graph_->AddInput({}, graph_->types().Intern(type), input.name);
    Binding binding{.value = value};
    if (input.integer) {
      binding.kind = Binding::Kind::kNumber;
      binding.number = *input.integer;
      has_hints_ = true;
    }
    Bind(input.name, binding);
  }
  return Done{};
}

Status GraphBuilder::AddOutputs() {
  for (uint32_t i = 0; i < launches_.size(); ++i) {
    if (launches_[i].results.empty()) HEDDLE_RETURN_IF_ERROR(WaitFor(i));
  }
  ForeignCall call;
  call.offset = program_.outputs_offset;
  call.name = "output";
  for (const ForeignOutput& output : program_.outputs) {
    if (output.value.kind == Kind::kNone) continue;
    const Binding* binding = Find(output.value);
    ValueId value;
    if (output.value.kind == Kind::kName && binding == nullptr)
      return Fail(call, Diag::kUndefinedValue, "`{}` is returned and made nowhere",
                  output.value.text);
    if (binding != nullptr && binding->kind == Binding::Kind::kNumber) {
      value = binding->value ? binding->value : ScalarNode(call, output.value);
    } else if (binding != nullptr) {
      HEDDLE_TRY(value, Tensor(call, output.value));
    } else if (Number(output.value)) {
      value = ScalarNode(call, output.value);
    } else {
      return Fail(call, Diag::kOperandKind, "an output is neither a tensor nor a number");
    }
    graph_->AddOutput({.value = value});
  }
  for (auto [target, value] : updates_)
    graph_->AddOutput({.value = value, .role = OutputRole::kUpdate, .target = target});
  return Done{};
}

Status GraphBuilder::AddCall(const ForeignCall& call) {
  std::string_view target = call.target;
  std::string_view collective = CollectiveName(target);
  if (collective == "wait_tensor") return AddWait(call);
  if (!collective.empty() && collective != "broadcast") return AddCollective(call, collective);
  if (target.starts_with("operator.") || target.starts_with("torch.sym_"))
    return AddArithmetic(call);
  if (target.starts_with("aten.sym_")) return AddSize(call);
  if (target == "aten.copy_.default") return AddCopyInto(call);
  if (target.ends_with(".default")) target.remove_suffix(8);
  OpId op = ops_.Find(target);
  if (op && op != kOpaqueOp && !target.starts_with("comm.") && !target.starts_with("shard.") &&
      !target.starts_with("mem."))
    return AddTableCall(call, op);
  return AddOpaqueCall(call);
}

const GraphBuilder::Binding* GraphBuilder::Find(const ForeignValue& value) const {
  if (value.kind != Kind::kName) return nullptr;
  auto found = bindings_.find(value.text);
  return found == bindings_.end() ? nullptr : &found->second;
}

Result<ValueId> GraphBuilder::Tensor(const ForeignCall& call, const ForeignValue& value) {
  const Binding* binding = Find(value);
  if (binding == nullptr && value.kind == Kind::kName)
    return Fail(call, Diag::kUndefinedValue, "`{}` is used here and made nowhere before",
                value.text);
  if (binding == nullptr) return Fail(call, Diag::kOperandKind, "expected a tensor");
  if (binding->kind == Binding::Kind::kTensor) return binding->value;
  if (binding->kind == Binding::Kind::kNumber)
    return binding->value ? binding->value : ScalarNode(call, value);
  Binding launched = *binding;
  if (launches_[launched.launch].results.empty()) HEDDLE_RETURN_IF_ERROR(WaitFor(launched.launch));
  ValueId waited = launches_[launched.launch].results[launched.item];
  BindTensor(value.text, waited);
  return waited;
}

std::optional<int64_t> GraphBuilder::Number(const ForeignValue& value) const {
  if (value.kind == Kind::kInt) return value.integer;
  if (value.kind == Kind::kBool) return value.boolean ? 1 : 0;
  const Binding* binding = Find(value);
  if (binding != nullptr && binding->kind == Binding::Kind::kNumber) return binding->number;
  return std::nullopt;
}

Diagnostic GraphBuilder::At(const ForeignCall& call, Diagnostic diagnostic) const {
  size_t at = call.offset;
  // A reader of JSON knows no places. The name in quotes stands where the call does, or near enough.
  if (at == SIZE_MAX) at = source_.text().find(fmt::format("\"{}\"", call.name));
  if (at == std::string_view::npos) at = 0;
  return source_.At(std::move(diagnostic), at, std::max<size_t>(1, call.name.size()));
}

Status GraphBuilder::CheckStated(const ForeignCall& call, const std::optional<Type>& stated,
                                 const Type& found, std::string_view name) {
  if (!stated || (stated->dtype == found.dtype && stated->dims == found.dims)) return Done{};
  TypeTable& types = graph_->types();
  const Module& module = imported_.module;
  return Fail(call, Diag::kResultType, "`{}` is stated as {}, {} gives {}", name,
              PrintType(module, *graph_, types.Intern(*stated)), call.target,
              PrintType(module, *graph_, types.Intern(found)));
}

NodeId GraphBuilder::Append(const ForeignCall& call, OpId op, std::span<const ValueId> operands,
                            const Attrs& attrs, std::span<const Type> types,
                            std::span<const std::string_view> names) {
  std::vector<ResultSpec> results;
  for (size_t i = 0; i < types.size(); ++i)
    results.push_back({.type = graph_->types().Intern(types[i]), .name = names[i]});
  NodeSpec spec;
  spec.op = op;
  spec.operands = operands;
  spec.attrs = graph_->InternAttrs(attrs);
  spec.results = results;
  spec.scope = graph_->InternScope(call.scope);
  spec.phase = call.phase.value_or(Phase::kForward);
  return graph_->Append(spec);
}

Status GraphBuilder::Finish(const ForeignCall& call, OpId op, const std::vector<Type>& types) {
  std::vector<std::string_view> names(types.size());
  std::vector<std::string> fresh(types.size());
  bool by_key = !call.results.empty() && !call.results[0].key.empty();
  // Results that are numbers, as sizes beside attention, are none of a node's.
  const std::vector<ReturnKind>& returns = ops_[op].schema.returns;
  auto position = [&](size_t r) {
    int64_t index = call.results[r].index;
    if (by_key) return static_cast<int64_t>(r);
    if (op == kOpaqueOp || index < 0 || index >= static_cast<int64_t>(returns.size())) return index;
    if (returns[index] == ReturnKind::kOther) return int64_t{-1};
    return static_cast<int64_t>(
        std::count_if(returns.begin(), returns.begin() + index,
                      [](ReturnKind kind) { return kind != ReturnKind::kOther; }));
  };
  for (size_t r = 0; r < call.results.size(); ++r) {
    const ForeignResult& result = call.results[r];
    int64_t i = position(r);
    if (i < 0 || i >= static_cast<int64_t>(types.size()))
      return Fail(call, Diag::kResultCount, "`{}` is item {} of `{}`, which has {}", result.name,
                  result.index, call.name, Counted(types.size(), "tensor"));
    HEDDLE_RETURN_IF_ERROR(CheckStated(call, result.stated, types[i], result.name));
    if (names[i].empty()) names[i] = result.name;
  }
  if (!call.several && types.size() == 1) {
    names[0] = call.name;
    HEDDLE_RETURN_IF_ERROR(CheckStated(call, call.stated, types[0], call.name));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (!names[i].empty()) continue;
    fresh[i] = fmt::format("{}.{}", call.name.empty() ? "unnamed" : call.name, i);
    names[i] = fresh[i];
  }
  NodeId node = Append(call, op, builder_->operands(), builder_->attrs(), types, names);
  std::vector<ValueId> values;
  for (ValueId value : graph_->results(node)) values.push_back(value);
  for (size_t r = 0; r < call.results.size(); ++r)
    BindTensor(call.results[r].name, values[static_cast<size_t>(position(r))]);
  if (!call.several && types.size() == 1) BindTensor(call.name, values[0]);
  return Done{};
}

}  // namespace heddle
