#include <algorithm>

#include "heddle/base/text.h"
#include "heddle/import/graph_builder_parts.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

}  // namespace

const ForeignValue* GraphBuilder::Argument(const ForeignCall& call, size_t position,
                                           std::string_view name) const {
  for (const ForeignArg& arg : call.args) {
    if (arg.name == name) return &arg.value;
  }
  bool there = position < call.args.size() && call.args[position].name.empty();
  return there ? &call.args[position].value : nullptr;
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
    return Fail(call, Diag::kMeshSize, "{} over {} ranks, but group `{}` has {}", call.target,
                *ranks, group, along);
  return Done{};
}

Status GraphBuilder::AddCollective(const ForeignCall& call, std::string_view name) {
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
    return Fail(call, Diag::kOperandCount, "{} names no tensor, or no group", call.target);
  const ForeignValue* size =
      gathers || scatters ? Argument(call, group_at - 1, "group_size") : nullptr;
  HEDDLE_RETURN_IF_ERROR(CheckGroup(call, group->text, size));

  OpId op = gathers    ? op::comm_all_gather
            : scatters ? op::comm_reduce_scatter
            : reduces  ? op::comm_all_reduce
                       : op::comm_all_to_all;
  std::vector<ValueId> tensors;
  std::span<const ForeignValue> inputs =
      coalesced ? program_.items(*input) : std::span<const ForeignValue>(input, 1);
  for (const ForeignValue& one : inputs) {
    HEDDLE_TRY(ValueId tensor, Tensor(call, one));
    tensors.push_back(tensor);
  }
  builder_->Begin(ops_[op]);
  for (ValueId tensor : tensors) builder_->AddTensor(tensor);
  builder_->AddAttr("over", *groups_.Find(group->text));
  builder_->AddAttr("why", Why::kTensor);
  if (scatters || reduces) {
    const ForeignValue* how = Argument(call, 1, "reduce_op");
    AttrValue reduce = ParseEnumerator(how == nullptr ? "" : how->text);
    if (!std::holds_alternative<ReduceOp>(reduce))
      return Fail(call, Diag::kAttrKind, "`{}` is not a reduction that Heddle has",
                  how == nullptr ? "" : how->text);
    builder_->AddAttr("op", reduce);
  }
  if (exchanges) HEDDLE_RETURN_IF_ERROR(AddAllToAll(call, *groups_.Find(group->text), tensors[0]));
  if (std::optional<CallBuilder::Mistake> mistake = builder_->Finish())
    return Failure{{At(call, std::move(mistake->diagnostic))}};
  OpArgs args(ops_[op], builder_->attrs(), imported_.module.mesh, graph_->types().symbols(),
              OperandTypes(*graph_, builder_->operands()));
  Result<Types> types = InferTypes(args);
  if (!types.ok())
    return Fail(call, types.diagnostics()[0].kind, "{}: {}", ops_[op].name(),
                types.diagnostics()[0].message);
  for (const Type& element : (*types)[0].elements) {
    if (std::ranges::any_of(element.dims, IsSymbol))
      return Fail(call, Diag::kCommSize,
                  "{}: dimension 0 is not divided by the ranks of group `{}`", call.target,
                  group->text);
  }
  if (!coalesced)
    HEDDLE_RETURN_IF_ERROR(CheckStated(call, call.stated, (*types)[0].elements[0], call.name));
  std::string_view names[] = {call.name.empty() ? "unnamed" : call.name};
  NodeId node = Append(call, op, builder_->operands(), builder_->attrs(), *types, names);
  auto launch = static_cast<uint32_t>(launches_.size());
  launches_.push_back({&call, *graph_->results(node).begin()});
  Bind(call.name, {.kind = Binding::Kind::kLaunched, .launch = launch});
  for (const ForeignResult& result : call.results) {
    if (result.index < 0 || result.index >= static_cast<int64_t>(tensors.size()))
      return Fail(call, Diag::kResultCount, "`{}` is item {} of `{}`, which has {}", result.name,
                  result.index, call.name, Counted(tensors.size(), "tensor"));
    Bind(result.name, {.kind = Binding::Kind::kLaunched,
                       .launch = launch,
                       .item = static_cast<uint32_t>(result.index)});
  }
  return Done{};
}

// Equal parts are the rule. Others are said, as far as they are known.
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
    return Fail(call, Diag::kAttrKind, "{} has parts whose sizes are not numbers", call.target);
  // Without sizes, parts are equal.
  if (taken->empty() && given->empty()) return Done{};
  int64_t ranks = imported_.module.mesh.Size(over);
  if (std::ssize(*taken) != ranks || std::ssize(*given) != ranks)
    return Fail(call, Diag::kCommSize, "{} takes {} parts and gives {}, for {} ranks", call.target,
                taken->size(), given->size(), ranks);
  int64_t rows = 0;
  for (int64_t part : *given) {
    if (part < 0 || __builtin_add_overflow(rows, part, &rows))
      return Fail(call, Diag::kBadSize, "{} moves a part of {} rows", call.target, part);
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
  Type async = graph_->types()[graph_->type(launch.async)];
  std::vector<std::string> made(async.elements.size());
  std::vector<std::string_view> names(async.elements.size());
  auto name = [&](std::string_view of, size_t i) {
    auto wait = wait_names_.find(of);
    if (i < names.size() && names[i].empty() && wait != wait_names_.end()) names[i] = wait->second;
  };
  if (!call.several) name(call.name, 0);
  for (const ForeignResult& result : call.results)
    name(result.name, static_cast<size_t>(result.index));
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) continue;
    made[i] = fmt::format("{}.{}", call.name, i);
    names[i] = made[i];
  }
  NodeId node = Append(call, op::comm_wait, {&launch.async, 1}, {}, async.elements, names);
  for (ValueId value : graph_->results(node)) launch.results.push_back(value);
  return Done{};
}

Status GraphBuilder::AddWait(const ForeignCall& call) {
  if (call.args.size() != 1) return Fail(call, Diag::kOperandCount, "a wait is for one tensor");
  const Binding* binding = Find(call.args[0].value);
  if (binding != nullptr && binding->kind == Binding::Kind::kLaunched) {
    HEDDLE_TRY(ValueId value, Tensor(call, call.args[0].value));
    HEDDLE_RETURN_IF_ERROR(
        CheckStated(call, call.stated, graph_->types()[graph_->type(value)], call.name));
    BindTensor(call.name, value);
    return Done{};
  }
  // What another graph launched, and this one is handed.
  return AddTableCall(call, op::alias);
}

}  // namespace heddle
