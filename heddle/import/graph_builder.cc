#include "heddle/import/graph_builder.h"

#include <algorithm>
#include <map>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/import/graph_builder_impl.h"

namespace heddle {

using Kind = ForeignValue::Kind;

Result<Imported> BuildGraph(const ForeignProgram& program, const SourceText& source,
                            const ImportOptions& options) {
  return GraphBuilder(program, source, options).Build();
}

Result<Imported> GraphBuilder::Build() {
  if (options_.hint < 0)
    return Error(Diag::kBadChoice, "--hint is {}, expected at least 0", options_.hint);
  if (!global()) {
    HEDDLE_TRY(groups_, GroupAxes::Make(program_, options_, imported_.remarks));
  }
  imported_.module.view = global() ? View::kGlobal : View::kLocal;
  imported_.module.mesh = groups_.mesh();
  imported_.module.graphs.emplace_back(program_.name, ops_);
  graph_ = imported_.module.graphs.data();
  builder_.emplace(imported_.module.mesh, graph_->types().symbols());
  graph_->ReserveNodes(program_.calls.size());
  FindTargets();
  bindings_.resize(program_.words.size());
  wait_names_.resize(program_.words.size());
  FindWaits();
  HEDDLE_RETURN_IF_ERROR(AddInputs());
  for (const ForeignCall& call : program_.calls) HEDDLE_RETURN_IF_ERROR(AddCall(call));
  HEDDLE_RETURN_IF_ERROR(AddOutputs());
  ImportCounts& counts = imported_.counts;
  counts.placeholders = program_.inputs.size();
  counts.statements = program_.statements;
  counts.items = program_.statements_folded;
  counts.outputs = graph_->outputs().size() - updates_.size();
  AddRemarks();
  return std::move(imported_);
}

GraphBuilder::Target GraphBuilder::TargetOf(std::string_view name) const {
  std::string_view collective = CollectiveName(name);
  if (collective == "wait_tensor") return {.kind = Target::Kind::kWait};
  if (!collective.empty() && collective != "broadcast") return {.kind = Target::Kind::kCollective};
  if (name.starts_with("operator.") || name.starts_with("torch.sym_"))
    return {.kind = Target::Kind::kArithmetic};
  if (name.starts_with("aten.sym_")) return {.kind = Target::Kind::kSize};
  if (name == "aten.copy_.default") return {.kind = Target::Kind::kCopyInto};
  if (name.ends_with(".default")) name.remove_suffix(8);
  OpId op = ops_.Find(name);
  bool ours = name.starts_with("comm.") || name.starts_with("shard.") || name.starts_with("mem.");
  if (!op || op == kOpaqueOp || ours) return {.kind = Target::Kind::kOpaque};
  return {.kind = Target::Kind::kTable, .op = op};
}

void GraphBuilder::FindTargets() {
  for (TargetId target : program_.targets.ids()) {
    std::string_view name = program_.targets[target];
    Target facts = TargetOf(name);
    facts.opaque_name = OpaqueName(name);
    facts.asserts = IsAssertion(name);
    facts.writes_in_place = WritesInPlace(name);
    facts.reads_size = name == "aten._local_scalar_dense.default";
    targets_.Add(std::move(facts));
  }
}

void GraphBuilder::FindWaits() {
  for (const ForeignCall& call : program_.calls) {
    if (targets_[call.target].kind != Target::Kind::kWait || call.arg_count == 0) continue;
    WordId waited = program_.args_of(call)[0].value.word;
    if (waited && !wait_names_[waited]) wait_names_[waited] = call.name;
  }
}

void GraphBuilder::AddRemarks() {
  std::vector<std::string>& remarks = imported_.remarks;
  size_t& count = imported_.counts.opaque;
  if (hinted_ > 0)
    remarks.push_back(fmt::format("{} that {} read from tensors {} assumed to be {} (--hint)",
                                  Counted(hinted_, "size"), hinted_ == 1 ? "is" : "are",
                                  hinted_ == 1 ? "is" : "are", options_.hint));
  std::map<std::string_view, size_t> refused;
  std::map<std::string_view, size_t> opaque;
  for (TargetId target : program_.targets.ids()) {
    const Target& facts = targets_[target];
    if (facts.refused > 0) refused[program_.targets[target]] = facts.refused;
    if (facts.opaque > 0) opaque[program_.targets[target]] = facts.opaque;
  }
  if (arithmetic_ > 0) opaque["arithmetic with sizes"] = arithmetic_;
  for (const auto& [name, calls] : refused) {
    count += calls;
    remarks.push_back(fmt::format(
        "{} has {} that its shape rule rejects, with a mask or contradictory sizes: opaque", name,
        Counted(calls, "call")));
  }
  for (const auto& [name, nodes] : opaque) {
    count += nodes;
    remarks.push_back(fmt::format("{} is not in the op table: {} opaque", name,
                                  nodes == 1 ? "1 node is" : fmt::format("{} nodes are", nodes)));
  }
  bool any_aten = std::ranges::any_of(
      opaque, [](const auto& entry) { return entry.first.starts_with("aten."); });
  if (program_.has_signature && any_aten)
    remarks.push_back(
        "torch.export keeps composite ops; call `exported.run_decompositions()` before "
        "torch.export.save to decompose them into ops of the table");
}

Status GraphBuilder::AddInputs() {
  for (const ForeignInput& input : program_.inputs) {
    ForeignCall place;
    place.offset = input.offset;
    place.name = input.name;
    if (bindings_[input.name].kind != Binding::Kind::kNothing)
      return Fail(place, Diag::kDuplicateName, "two inputs are named `{}`", Text(input.name));
    if (input.type == nullptr && !input.integer)
      return Fail(place, Diag::kMissingType,
                  "the file does not state the type of input `{}`; a repro states it in "
                  "`load_args`, `print_readable` after the name",
                  Text(input.name));
    TypeTable& types = graph_->types();
    TypeId type = input.type != nullptr ? types.Intern(*input.type)
                                        : types.Tensor(DType::kI64, {}, Space::kHost);
    ValueId value = graph_->AddInput({}, type, Text(input.name));
    Binding binding{.kind = Binding::Kind::kTensor, .value = value, .number = 0};
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
    if (!launches_[i].wait) HEDDLE_RETURN_IF_ERROR(WaitFor(i));
  }
  ForeignCall call = program_.output_call;
  graph_->mutable_outputs().reserve(program_.outputs.size() + updates_.size());
  for (const ForeignOutput& output : program_.outputs) {
    call.offset = output.offset;
    if (output.value.kind == Kind::kNone) continue;
    const Binding* binding = Find(output.value);
    ValueId value;
    if (output.value.kind == Kind::kName && binding == nullptr)
      return Fail(call, Diag::kUndefinedValue, "`{}` is returned but never defined",
                  Text(output.value));
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
  const Target& target = targets_[call.target];
  bool communicates =
      target.kind == Target::Kind::kCollective || target.kind == Target::Kind::kWait;
  if (global() && communicates) {
    std::string_view cause = options_.global ? "--global" : "`view`";
    return Fail(call, Diag::kUsage,
                "`{}` is a collective, but {} imports a graph without ranks; remove {} to import a "
                "graph of one rank",
                program_.target(call), cause, cause);
  }
  switch (target.kind) {
    case Target::Kind::kTable: return AddTableCall(call, target.op);
    case Target::Kind::kOpaque: return AddOpaqueCall(call);
    case Target::Kind::kWait: return AddWait(call);
    case Target::Kind::kCollective: return AddCollective(call);
    case Target::Kind::kArithmetic: return AddArithmetic(call);
    case Target::Kind::kSize: return AddSize(call);
    case Target::Kind::kCopyInto: return AddCopyInto(call);
  }
  return Done{};
}

void GraphBuilder::BindNumber(WordId name, int64_t number) {
  if (!name) return;
  bindings_[name].kind = Binding::Kind::kNumber;
  bindings_[name].number = number;
}

Result<ValueId> GraphBuilder::Tensor(const ForeignCall& call, const ForeignValue& value) {
  const Binding* binding = Find(value);
  if (binding == nullptr && value.kind == Kind::kName)
    return Fail(call, Diag::kUndefinedValue, "`{}` is used before it is defined", Text(value));
  if (binding == nullptr) return Fail(call, Diag::kOperandKind, "expected a tensor");
  if (binding->kind == Binding::Kind::kTensor) return binding->value;
  if (binding->kind == Binding::Kind::kNumber)
    return binding->value ? binding->value : ScalarNode(call, value);
  Binding::OfLaunch launched = binding->launched;
  if (!launches_[launched.launch].wait) HEDDLE_RETURN_IF_ERROR(WaitFor(launched.launch));
  ValueId waited = graph_->results(launches_[launched.launch].wait)[launched.item];
  BindTensor(value.word, waited);
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
  return source_.At(std::move(diagnostic), call.offset,
                    std::max<size_t>(1, Text(call.name).size()));
}

Status GraphBuilder::CheckStated(const ForeignCall& call, const Type* stated, TypeId found,
                                 WordId name) {
  TypeTable& types = graph_->types();
  if (stated == nullptr ||
      (stated->dtype == types.dtype(found) && std::ranges::equal(stated->dims, types.dims(found))))
    return Done{};
  const Module& module = imported_.module;
  return Fail(call, Diag::kResultType, "`{}` is stated as {}, but {} computes {}", Text(name),
              PrintType(module, *graph_, types.Intern(*stated)), program_.target(call),
              PrintType(module, *graph_, found));
}

std::vector<TypeId> GraphBuilder::InternTypes(std::span<const Type> types) {
  std::vector<TypeId> ids;
  ids.reserve(types.size());
  for (const Type& type : types) ids.push_back(graph_->types().Intern(type));
  return ids;
}

NodeId GraphBuilder::Append(const ForeignCall& call, OpId op, std::span<const ValueId> operands,
                            AttrsId attrs, std::span<const TypeId> types) {
  results_.clear();
  for (size_t i = 0; i < types.size(); ++i)
    results_.push_back({.type = types[i], .name = names_[i]});
  NodeSpec spec;
  spec.op = op;
  spec.operands = operands;
  spec.attrs = attrs;
  spec.results = results_;
  spec.scope = graph_->InternScope(Text(call.scope));
  spec.phase = call.phase.value_or(Phase::kForward);
  NodeId node = graph_->Append(spec);
  made_names_.clear();
  return node;
}

std::string_view GraphBuilder::MakeName(std::string_view call, size_t result) {
  std::string& name = made_names_.emplace_back(call);
  name += '.';
  AppendInt(name, static_cast<int64_t>(result));
  return name;
}

int64_t GraphBuilder::PositionOf(const ForeignCall& call, OpId op, size_t result) const {
  std::span<const ForeignResult> results = program_.results_of(call);
  if (results[0].key) return static_cast<int64_t>(result);
  int64_t index = results[result].index;
  // Results that are numbers, such as the sizes that attention returns, are not results of the
  // node.
  const std::vector<ReturnKind>& returns = ops_[op].schema.returns;
  if (op == kOpaqueOp || index < 0 || index >= static_cast<int64_t>(returns.size())) return index;
  if (returns[index] == ReturnKind::kOther) return -1;
  return std::count_if(returns.begin(), returns.begin() + index,
                       [](ReturnKind kind) { return kind != ReturnKind::kOther; });
}

Status GraphBuilder::NameResults(const ForeignCall& call, OpId op, std::span<const TypeId> types) {
  names_.assign(types.size(), {});
  std::span<const ForeignResult> results = program_.results_of(call);
  for (size_t r = 0; r < results.size(); ++r) {
    const ForeignResult& result = results[r];
    int64_t i = PositionOf(call, op, r);
    if (i < 0 || i >= static_cast<int64_t>(types.size()))
      return Fail(call, Diag::kResultCount, "`{}` is item {} of `{}`, which has {}",
                  Text(result.name), result.index, Text(call.name),
                  Counted(types.size(), "tensor"));
    HEDDLE_RETURN_IF_ERROR(CheckStated(call, result.stated, types[i], result.name));
    if (names_[i].empty()) names_[i] = Text(result.name);
  }
  if (!call.several && types.size() == 1) {
    names_[0] = Text(call.name);
    HEDDLE_RETURN_IF_ERROR(CheckStated(call, call.stated, types[0], call.name));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (names_[i].empty()) names_[i] = MakeName(NameOf(call), i);
  }
  return Done{};
}

Status GraphBuilder::Finish(const ForeignCall& call, OpId op, AttrsId attrs,
                            std::span<const TypeId> types) {
  HEDDLE_RETURN_IF_ERROR(NameResults(call, op, types));
  size_t first = graph_->value_count();
  Append(call, op, operands_, attrs, types);
  IdRange<ValueId> values(first, graph_->value_count());
  std::span<const ForeignResult> results = program_.results_of(call);
  for (size_t r = 0; r < results.size(); ++r)
    BindTensor(results[r].name, values[static_cast<size_t>(PositionOf(call, op, r))]);
  if (!call.several && types.size() == 1) BindTensor(call.name, values[0]);
  return Done{};
}

}  // namespace heddle
