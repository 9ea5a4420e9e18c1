#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/import/graph_builder_impl.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

}  // namespace

const ForeignValue* GraphBuilder::Argument(const ForeignCall& call, size_t position,
                                           std::string_view name) const {
  std::span<const ForeignArg> args = program_.args_of(call);
  for (const ForeignArg& arg : args) {
    if (Text(arg.name) == name) return &arg.value;
  }
  bool there = position < args.size() && !args[position].name;
  return there ? &args[position].value : nullptr;
}

Status GraphBuilder::CheckGroup(const ForeignCall& call, std::string_view group,
                                const ForeignValue* size) {
  const Axes* axes = groups_.Find(group);
  if (axes == nullptr)
    return Fail(call, Diag::kUnknownAxis,
                "process group `{}` has no axes; give --mesh, and --group={}=AXES", group, group);
  std::optional<int64_t> ranks = size == nullptr ? std::nullopt : Number(*size);
  int64_t along = imported_.module.mesh.Size(*axes);
  if (ranks && *ranks != along)
    return Fail(call, Diag::kMeshSize, "{} over {} ranks, but group `{}` has {}",
                program_.target(call), *ranks, group, along);
  return Done{};
}

Status GraphBuilder::AddCollective(const ForeignCall& call) {
  std::string_view name = CollectiveName(program_.target(call));
  bool coalesced = name.ends_with("_coalesced");
  bool gathers = name.starts_with("all_gather_into_tensor");
  bool scatters = name.starts_with("reduce_scatter_tensor");
  bool reduces = name == "all_reduce" || name == "all_reduce_coalesced";
  bool exchanges = name == "all_to_all_single";
  if (!gathers && !scatters && !reduces && !exchanges) return AddOpaqueCall(call);
  size_t group_at = gathers || reduces ? 2 : 3;
  const ForeignValue* input = Argument(call, 0, coalesced ? "inputs" : "input");
  const ForeignValue* group = Argument(call, group_at, "group_name");
  if (input == nullptr || group == nullptr || group->kind != Kind::kString)
    return Fail(call, Diag::kOperandCount, "{} lacks a tensor or a group", program_.target(call));
  const ForeignValue* size =
      gathers || scatters ? Argument(call, group_at - 1, "group_size") : nullptr;
  std::string_view group_name = Text(*group);
  HEDDLE_RETURN_IF_ERROR(CheckGroup(call, group_name, size));

  OpId op = gathers    ? op::comm_all_gather
            : scatters ? op::comm_reduce_scatter
            : reduces  ? op::comm_all_reduce
                       : op::comm_all_to_all;
  const Axes& over = *groups_.Find(group_name);
  HEDDLE_RETURN_IF_ERROR(
      BeginCollective(call, op, over, coalesced ? program_.items(*input) : std::span(input, 1)));
  if (scatters || reduces) {
    const ForeignValue* how = Argument(call, 1, "reduce_op");
    std::string_view word = how == nullptr ? std::string_view() : Text(*how);
    AttrValue reduce = ParseEnumerator(word);
    if (!std::holds_alternative<ReduceOp>(reduce))
      return Fail(call, Diag::kAttrKind, "`{}` is not a reduction that Heddle supports", word);
    builder_->AddAttr("op", reduce);
  }
  if (exchanges) {
    HEDDLE_TRY(ValueId tensor, Tensor(call, *input));
    HEDDLE_RETURN_IF_ERROR(AddAllToAll(call, over, tensor));
  }
  HEDDLE_RETURN_IF_ERROR(TakeOperands(call));
  AttrsId attrs = graph_->InternAttrs(builder_->attrs());
  Result<std::vector<TypeId>> types = InferredTypes(op, attrs);
  if (!types.ok())
    return Fail(call, types.diagnostics()[0].kind, "{}: {}", ops_[op].name(),
                types.diagnostics()[0].message);
  TypeId async = (*types)[0];
  for (TypeId element : graph_->types().elements(async)) {
    if (std::ranges::any_of(graph_->types().dims(element), IsSymbol))
      return Fail(call, Diag::kCommSize, "{}: the ranks of group `{}` do not divide dimension 0",
                  program_.target(call), group_name);
  }
  return FinishCollective(call, op, attrs, async);
}

Status GraphBuilder::BeginCollective(const ForeignCall& call, OpId op, const Axes& over,
                                     std::span<const ForeignValue> inputs) {
  builder_->Begin(ops_[op]);
  for (const ForeignValue& one : inputs) {
    HEDDLE_TRY(ValueId tensor, Tensor(call, one));
    builder_->AddTensor(tensor);
  }
  builder_->AddAttr("over", over);
  builder_->AddAttr("why", Why::kTensor);
  return Done{};
}

Status GraphBuilder::FinishCollective(const ForeignCall& call, OpId op, AttrsId attrs,
                                      TypeId async) {
  std::span<const TypeId> elements = graph_->types().elements(async);
  if (call.stated != nullptr && !CollectiveName(program_.target(call)).ends_with("_coalesced"))
    HEDDLE_RETURN_IF_ERROR(CheckStated(call, call.stated, elements[0], call.name));
  names_.assign(1, NameOf(call));
  NodeId node = Append(call, op, operands_, attrs, {&async, 1});
  auto launch = static_cast<uint32_t>(launches_.size());
  launches_.push_back({&call, graph_->results(node)[0]});
  Bind(call.name, {.kind = Binding::Kind::kLaunched, .launched = {launch, 0}});
  for (const ForeignResult& result : program_.results_of(call)) {
    if (result.index < 0 || result.index >= static_cast<int64_t>(elements.size()))
      return Fail(call, Diag::kResultCount, "`{}` is item {} of `{}`, which has {}",
                  Text(result.name), result.index, Text(call.name),
                  Counted(elements.size(), "tensor"));
    Bind(result.name, {.kind = Binding::Kind::kLaunched,
                       .launched = {launch, static_cast<uint32_t>(result.index)}});
  }
  return Done{};
}

// Parts are equal unless the call states sizes. Known sizes become attributes.
Status GraphBuilder::AddAllToAll(const ForeignCall& call, const Axes& over, ValueId tensor) {
  builder_->AddAttr("split_dim", int64_t{0});
  builder_->AddAttr("concat_dim", int64_t{0});
  auto sizes = [&](size_t position, std::string_view name) -> std::optional<std::vector<int64_t>> {
    const ForeignValue* list = Argument(call, position, name);
    std::optional<AttrValue> attr = list == nullptr ? std::nullopt : ToAttr(*list);
    if (!attr || std::holds_alternative<std::monostate>(*attr)) return std::vector<int64_t>();
    const auto* ints = std::get_if<std::vector<int64_t>>(&*attr);
    return ints == nullptr ? std::nullopt : std::optional(*ints);
  };
  std::optional<std::vector<int64_t>> taken = sizes(1, "output_split_sizes");
  std::optional<std::vector<int64_t>> given = sizes(2, "input_split_sizes");
  if (!taken || !given)
    return Fail(call, Diag::kAttrKind, "{} has parts whose sizes are not numbers",
                program_.target(call));
  // Without sizes, parts are equal.
  if (taken->empty() && given->empty()) return Done{};
  int64_t ranks = imported_.module.mesh.Size(over);
  if (std::ssize(*taken) != ranks || std::ssize(*given) != ranks)
    return Fail(call, Diag::kCommSize,
                "{} receives {} parts and sends {}, but the group has {} ranks",
                program_.target(call), taken->size(), given->size(), ranks);
  int64_t rows = 0;
  for (int64_t part : *given) {
    if (part < 0 || __builtin_add_overflow(rows, part, &rows))
      return Fail(call, Diag::kBadSize, "{} sends a part of {} rows", program_.target(call), part);
  }
  std::span<const Dim> dims = graph_->types().dims(graph_->type(tensor));
  bool even = *given == *taken &&
              std::ranges::adjacent_find(*given, std::not_equal_to()) == given->end() &&
              !dims.empty() && dims[0] == rows;
  if (!even) builder_->AddAttr("sizes", *std::move(taken));
  return Done{};
}

Status GraphBuilder::WaitFor(uint32_t index) {
  Launch& launch = launches_[index];
  const ForeignCall& call = *launch.call;
  std::span<const TypeId> elements = graph_->types().elements(graph_->type(launch.async));
  names_.assign(elements.size(), {});
  auto name = [&](WordId of, size_t i) {
    if (of && i < names_.size() && names_[i].empty()) names_[i] = Text(wait_names_[of]);
  };
  if (!call.several) name(call.name, 0);
  for (const ForeignResult& result : program_.results_of(call))
    name(result.name, static_cast<size_t>(result.index));
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].empty()) names_[i] = MakeName(Text(call.name), i);
  }
  launch.wait = Append(call, op::comm_wait, {&launch.async, 1}, AttrsTable::kEmpty, elements);
  return Done{};
}

Status GraphBuilder::AddWait(const ForeignCall& call) {
  if (call.arg_count != 1) return Fail(call, Diag::kOperandCount, "a wait takes one tensor");
  const ForeignValue& waited = program_.args_of(call)[0].value;
  const Binding* binding = Find(waited);
  if (binding != nullptr && binding->kind == Binding::Kind::kLaunched) {
    HEDDLE_TRY(ValueId value, Tensor(call, waited));
    HEDDLE_RETURN_IF_ERROR(CheckStated(call, call.stated, graph_->type(value), call.name));
    BindTensor(call.name, value);
    return Done{};
  }
  // A collective that another graph launched, and this graph receives as an input.
  return AddTableCall(call, op::alias);
}

}  // namespace heddle
