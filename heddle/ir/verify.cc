#include "heddle/ir/verify.h"

#include <algorithm>
#include <map>

#include "heddle/base/text.h"
#include "heddle/ir/cycle.h"
#include "heddle/ir/locate.h"
#include "heddle/ir/print.h"

namespace heddle {
namespace {

class GraphVerifier {
 public:
  GraphVerifier(const Module& module, size_t graph_index, std::vector<Finding>& findings)
      : module_(module),
        graph_(module.graphs[graph_index]),
        graph_index_(graph_index),
        findings_(findings),
        symbols_(graph_.types().symbols()) {}

  void Run() {
    CheckRegions();
    for (ValueId id : graph_.values()) CheckPlacement(id);
    CheckInputs();
    for (NodeId id : graph_.nodes()) CheckNode(id);
    CheckOutputs();
    CheckWaits();
    CheckUpdates();
    ReportUsesBeforeDefinition();
  }

 private:
  using Kind = Subject::Kind;

  template <typename... Args>
  void Report(Kind kind, size_t index, size_t part, Diag diag, fmt::format_string<Args...> format,
              Args&&... args) {
    Subject subject{kind, graph_index_, static_cast<uint32_t>(index), static_cast<uint32_t>(part)};
    findings_.push_back({subject, MakeDiagnostic(diag, format, std::forward<Args>(args)...)});
  }
  // About an operand of a node, with the op's name in front.
  template <typename... Args>
  void ReportOperand(NodeId id, size_t operand, Diag diag, fmt::format_string<Args...> format,
                     Args&&... args) {
    Report(Kind::kOperand, id.index(), operand, diag, "{}: {}", graph_.op(id).name(),
           fmt::format(format, std::forward<Args>(args)...));
  }

  std::string TypeText(TypeId type) {
    return FormatType(graph_.types()[type], module_.mesh, symbols_);
  }

  // --- Nodes

  void CheckNode(NodeId id) {
    const Node& node = graph_[id];
    // A line that could not be read; the parser has said so.
    if (!node.op) return;
    bool types_known = CheckOperands(id);
    if (node.op == kOpaqueOp || !types_known) return;
    CheckTypes(id);
  }

  bool CheckOperands(NodeId id) {
    bool types_known = true;
    std::span<const ValueId> operands = graph_.operands(id);
    for (size_t i = 0; i < operands.size(); ++i) {
      ValueId value = operands[i];
      if (!value) continue;
      NodeId producer = graph_[value].producer;
      if (producer && producer >= id) {
        early_uses_.push_back({id, static_cast<uint32_t>(i)});
        types_known = false;
      }
      types_known &= static_cast<bool>(graph_[value].type);
    }
    if (graph_[id].op == kOpaqueOp || !types_known) return types_known;
    return CheckOperandKinds(id);
  }

  bool CheckOperandKinds(NodeId id) {
    const Op& op = graph_.op(id);
    const Attrs& attrs = graph_.attrs(id);
    std::span<const ValueId> operands = graph_.operands(id);
    size_t at = 0;
    size_t lists = 0;
    bool ok = true;
    for (const Arg& arg : op.schema.args) {
      if (!IsOperand(arg.kind)) continue;
      size_t count = 1;
      if (IsListOperand(arg.kind))
        count = lists < attrs.list_sizes.size() ? attrs.list_sizes[lists++] : 0;
      if (at + count > operands.size()) {
        at = SIZE_MAX;
        break;
      }
      for (size_t i = 0; i < count; ++i) ok &= CheckOperandKind(id, arg, at + i);
      at += count;
    }
    if (at != operands.size()) {
      Report(Kind::kNode, id.index(), 0, Diag::kOperandCount,
             "{}: the node has {} operands, which its schema does not take", op.name(),
             operands.size());
      return false;
    }
    return ok;
  }

  bool CheckOperandKind(NodeId id, const Arg& arg, size_t i) {
    ValueId value = graph_.operands(id)[i];
    bool may_be_none =
        arg.kind == ArgKind::kOptionalTensor || arg.kind == ArgKind::kOptionalTensorList;
    if (!value) {
      if (may_be_none) return true;
      ReportOperand(id, i, Diag::kOperandKind, "`{}` is {}, not none", arg.name,
                    Describe(arg.kind));
      return false;
    }
    bool async = graph_.types().is_async(graph_.type(value));
    if (async == (arg.kind == ArgKind::kAsync)) return true;
    if (async) {
      ReportOperand(id, i, Diag::kAsyncUse, "`%{}` is {}; it is used before a `comm.wait` on it",
                    graph_.name(value), TypeText(graph_.type(value)));
    } else {
      ReportOperand(id, i, Diag::kAsyncUse,
                    "`%{}` is {}, which nothing waits for; expected an async value",
                    graph_.name(value), TypeText(graph_.type(value)));
    }
    return false;
  }

  // Calls of one op with one set of attributes and operand types give one answer: it is worked out once.
  struct Call {
    OpId op;
    AttrsId attrs;
    std::vector<TypeId> operands;
    // Filled when the first node with this call matched.
    std::vector<TypeId> results;
    bool matched = false;
  };

  void CheckTypes(NodeId id) {
    const Node& node = graph_[id];
    uint64_t hash = MixHash(node.op.index(), node.attrs.index());
    for (ValueId v : graph_.operands(id))
      hash = MixHash(hash, v ? graph_.type(v).index() : UINT32_MAX);
    uint32_t found = call_index_.Find(hash, [&](uint32_t n) { return SameCall(calls_[n], id); });
    if (found != HashIndex::kNone && calls_[found].matched) {
      auto same = [&](TypeId expected, ValueId result) { return expected == graph_.type(result); };
      IdRange<ValueId> results = graph_.results(id);
      const Call& call = calls_[found];
      bool equal = call.results.size() == results.size();
      for (size_t i = 0; equal && i < results.size(); ++i)
        equal = same(call.results[i], results[i]);
      if (equal) return;
    }
    bool matched = CheckInferred(id);
    if (found != HashIndex::kNone || !matched) return;
    Call call{node.op, node.attrs, {}, {}, true};
    for (ValueId v : graph_.operands(id)) call.operands.push_back(v ? graph_.type(v) : TypeId());
    for (ValueId v : graph_.results(id)) call.results.push_back(graph_.type(v));
    call_index_.Insert(hash, static_cast<uint32_t>(calls_.size()));
    calls_.push_back(std::move(call));
  }

  bool SameCall(const Call& call, NodeId id) const {
    std::span<const ValueId> operands = graph_.operands(id);
    if (call.op != graph_[id].op || call.attrs != graph_[id].attrs ||
        call.operands.size() != operands.size())
      return false;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (call.operands[i] != (operands[i] ? graph_.type(operands[i]) : TypeId())) return false;
    }
    return true;
  }

  bool CheckInferred(NodeId id) {
    const Op& op = graph_.op(id);
    if (!CheckAttrs(id)) return false;
    OpArgs args(op, graph_.attrs(id), module_.mesh, symbols_,
                OperandTypes(graph_, graph_.operands(id)));
    Result<Types> inferred = InferTypes(args);
    if (!inferred.ok()) {
      const Diagnostic& why = inferred.diagnostics()[0];
      Report(Kind::kNode, id.index(), 0, why.kind, "{}: {}", op.name(), why.message);
      return false;
    }
    IdRange<ValueId> results = graph_.results(id);
    if (inferred->size() != results.size()) {
      Report(Kind::kNode, id.index(), 0, Diag::kResultCount, "{}: the op gives {}, the node has {}",
             op.name(), Counted(inferred->size(), "result"), results.size());
      return false;
    }
    bool ok = true;
    for (size_t i = 0; i < results.size(); ++i) {
      TypeId type = graph_.type(results[i]);
      if (!type || graph_.types()[type] == (*inferred)[i]) continue;
      Report(Kind::kResult, id.index(), i, Diag::kResultType, "{}: `%{}` is {}, the op gives {}",
             op.name(), graph_.name(results[i]), TypeText(type),
             FormatType((*inferred)[i], module_.mesh, symbols_));
      ok = false;
    }
    return ok;
  }

  bool CheckAttrs(NodeId id) {
    const Op& op = graph_.op(id);
    const Attrs& attrs = graph_.attrs(id);
    size_t known = 0;
    for (const Arg& arg : op.schema.args) {
      if (!IsAttribute(arg.kind)) continue;
      const AttrValue* value = attrs.Find(arg.name);
      known += value != nullptr;
      if (value == nullptr && !arg.has_default) {
        Report(Kind::kNode, id.index(), 0, Diag::kMissingAttr, "{} needs attribute `{}`, {}",
               op.name(), arg.name, Describe(arg.kind));
        return false;
      }
      if (value != nullptr && !ConvertAttr(arg, *value)) {
        Report(Kind::kNode, id.index(), 0, Diag::kAttrKind, "attribute `{}` of {} is {}", arg.name,
               op.name(), Describe(arg.kind));
        return false;
      }
    }
    if (known == attrs.list.size()) return true;
    Report(Kind::kNode, id.index(), 0, Diag::kUnknownAttr,
           "{} has an attribute that its schema does not", op.name());
    return false;
  }

  void ReportUsesBeforeDefinition() {
    if (early_uses_.empty()) return;
    // Each report searches the graph once more.
    constexpr size_t kMost = 64;
    if (early_uses_.size() > kMost) early_uses_.resize(kMost);
    CycleFinder cycles(graph_);
    for (auto [id, operand] : early_uses_) {
      ValueId value = graph_.operands(id)[operand];
      NodeId producer = graph_[value].producer;
      std::vector<NodeId> path = cycles.Path(id, producer);
      if (path.empty()) {
        ReportOperand(id, operand, Diag::kUseBeforeDefinition,
                      "`%{}` is used by node {} and defined by node {}", graph_.name(value),
                      id.index(), producer.index());
        continue;
      }
      std::string text;
      for (NodeId step : path) text += fmt::format("%{} -> ", graph_.name(graph_.results(step)[0]));
      ReportOperand(id, operand, Diag::kCycle, "`%{}` depends on itself: {}%{}", graph_.name(value),
                    text, graph_.name(graph_.results(path[0])[0]));
    }
  }

  // --- Regions, values, inputs and outputs

  void CheckRegions() {
    if (graph_.regions().empty() || module_.view == View::kGlobal) return;
    Report(Kind::kGraph, 0, 0, Diag::kPlacement,
           "scope `{}` has a region, but the graph is local: nothing is left to be placed",
           graph_.scope_name(graph_.regions()[0].scope));
  }

  void CheckPlacement(ValueId id) {
    const Value& value = graph_[id];
    if (value.placement == PlacementTable::kReplicated || !value.type) return;
    auto report = [&](std::string_view text) {
      if (value.producer) {
        Report(Kind::kResult, value.producer.index(),
               id.index() - graph_[value.producer].first_result.index(), Diag::kPlacement,
               "`%{}` {}", graph_.name(id), text);
      } else {
        Report(Kind::kInput, id.index(), 0, Diag::kPlacement, "`%{}` {}", graph_.name(id), text);
      }
    };
    const Placement& placement = graph_.placements()[value.placement];
    if (module_.view == View::kLocal) report("has a placement, but the graph is local");
    if (placement.splits.size() > graph_.types().rank(value.type))
      report("is split along a dimension that it does not have");
  }

  void CheckInputs() {
    const std::vector<Input>& inputs = graph_.inputs();
    bool roles =
        std::ranges::any_of(inputs, [](const Input& i) { return i.role != InputRole::kPlain; });
    std::map<std::string_view, size_t> labels;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Input& input = inputs[i];
      if (graph_.types().is_async(graph_.type(input.value))) {
        Report(Kind::kInput, i, 0, Diag::kAsyncUse,
               "input `%{}` is async; a graph starts with tensors", graph_.name(input.value));
      }
      if (roles && input.role == InputRole::kPlain) {
        Report(Kind::kInput, i, 0, Diag::kLostRole, "input `%{}` has no role, other inputs have",
               graph_.name(input.value));
      }
      if (input.role != InputRole::kParam) continue;
      if (auto [first, added] = params_.emplace(input.index, i); !added) {
        Report(Kind::kInput, i, 0, Diag::kDuplicateRole,
               "parameter {} is input `%{}` and input `%{}`", input.index,
               graph_.name(inputs[first->second].value), graph_.name(input.value));
      }
      if (input.label.empty()) continue;
      if (auto [first, added] = labels.emplace(input.label, i); !added) {
        Report(Kind::kInput, i, 0, Diag::kDuplicateRole,
               "parameters {} and {} are both called \"{}\"", inputs[first->second].index,
               input.index, input.label);
      }
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].role != InputRole::kOpt || params_.contains(inputs[i].index)) continue;
      Report(Kind::kInput, i, 0, Diag::kLostRole,
             "`%{}` is state of parameter {}, which is not an input", graph_.name(inputs[i].value),
             inputs[i].index);
    }
  }

  void CheckOutputs() {
    const std::vector<Output>& outputs = graph_.outputs();
    bool roles =
        std::ranges::any_of(outputs, [](const Output& o) { return o.role != OutputRole::kPlain; });
    std::map<std::pair<OutputRole, int64_t>, size_t> taken;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Output& output = outputs[i];
      // Reported by the parser.
      if (!output.value) continue;
      if (graph_.type(output.value) && graph_.types().is_async(graph_.type(output.value))) {
        Report(Kind::kOutput, i, 0, Diag::kAsyncUse,
               "output `%{}` is async; it is returned before a `comm.wait` on it",
               graph_.name(output.value));
      }
      if (roles && output.role == OutputRole::kPlain) {
        Report(Kind::kOutput, i, 0, Diag::kLostRole, "output `%{}` has no role, other outputs have",
               graph_.name(output.value));
      }
      int64_t key = output.role == OutputRole::kUpdate ? output.target.index() : output.index;
      bool unique = output.role == OutputRole::kGrad || output.role == OutputRole::kUpdate ||
                    output.role == OutputRole::kLoss;
      if (unique && !taken.emplace(std::pair(output.role, key), i).second) {
        Report(Kind::kOutput, i, 0, Diag::kDuplicateRole,
               "output `%{}` has a role that another output has: {}{}", graph_.name(output.value),
               Name(output.role), output.index >= 0 ? fmt::format(" {}", output.index) : "");
      }
      CheckOutputTarget(i);
    }
  }

  void CheckOutputTarget(size_t i) {
    const Output& output = graph_.outputs()[i];
    ValueId target = output.target;
    if (output.role == OutputRole::kGrad) {
      // A backward graph may have been split from the graph that holds the parameters.
      auto param = params_.find(output.index);
      if (param == params_.end() && !params_.empty()) {
        Report(Kind::kOutput, i, 0, Diag::kLostRole,
               "`grad {}` of a parameter that is not an input", output.index);
      }
      if (param == params_.end()) return;
      target = graph_.inputs()[param->second].value;
    }
    if (!target || !graph_.type(output.value) || !graph_.type(target)) return;
    if (output.role == OutputRole::kUpdate && graph_[target].producer) {
      Report(Kind::kOutput, i, 0, Diag::kLostRole, "`update` of `%{}`, which is not an input",
             graph_.name(target));
      return;
    }
    // A gradient may come in another type than its parameter, but not in another shape.
    auto dims = [&](ValueId v) { return graph_.types().dims(graph_.type(v)); };
    bool fits = output.role == OutputRole::kGrad
                    ? std::ranges::equal(dims(output.value), dims(target))
                    : graph_.type(output.value) == graph_.type(target);
    if (fits || graph_.types().is_async(graph_.type(output.value))) return;
    Report(Kind::kOutput, i, 0, Diag::kRoleType,
           "`%{}` is {}, the input it belongs to, `%{}`, is {}", graph_.name(output.value),
           TypeText(graph_.type(output.value)), graph_.name(target), TypeText(graph_.type(target)));
  }

  // --- Properties of all uses of a value

  void CheckWaits() {
    Table<ValueId, NodeId> waited(graph_.value_count());
    for (NodeId id : graph_.nodes()) {
      for (ValueId value : graph_.operands(id)) {
        if (!value || !graph_[value].type || !graph_.types().is_async(graph_.type(value))) continue;
        if (waited[value]) {
          ReportOperand(id, 0, Diag::kAsyncUse, "`%{}` is waited for twice, first by node {}",
                        graph_.name(value), waited[value].index());
        }
        waited[value] = id;
      }
    }
  }

  void CheckUpdates() {
    auto is_update = [&](NodeId id) {
      return graph_[id].op && graph_.op(id).effect() == Effect::kUpdate;
    };
    if (std::ranges::none_of(graph_.nodes(), is_update)) return;
    Table<ValueId, bool> used(graph_.value_count());
    for (NodeId id : graph_.nodes()) {
      for (ValueId v : graph_.operands(id)) {
        if (v) used[v] = true;
      }
    }
    for (const Output& output : graph_.outputs()) {
      if (output.value) used[output.value] = true;
    }
    Table<ValueId, NodeId> taken_by(graph_.value_count());
    for (NodeId id : graph_.nodes()) {
      std::span<const ValueId> operands = graph_.operands(id);
      for (size_t i = 0; i < operands.size(); ++i) {
        if (!operands[i] || !taken_by[operands[i]] || !graph_[id].op) continue;
        ReportOperand(id, i, Diag::kReadAfterUpdate, "`%{}` is read after {} took over its storage",
                      graph_.name(operands[i]), graph_.op(taken_by[operands[i]]).name());
      }
      if (!is_update(id)) continue;
      IdRange<ValueId> results = graph_.results(id);
      for (size_t i = 0; i < operands.size() && i < results.size(); ++i) {
        if (operands[i] && used[results[i]]) taken_by[operands[i]] = id;
      }
    }
  }

  const Module& module_;
  const Graph& graph_;
  size_t graph_index_;
  std::vector<Finding>& findings_;
  // A copy: shape rules may add symbols.
  SymbolTable symbols_;
  // Parameter number to input.
  std::map<int64_t, size_t> params_;
  std::vector<std::pair<NodeId, uint32_t>> early_uses_;
  std::vector<Call> calls_;
  HashIndex call_index_;
};

std::string Describe(const Module& module, const Subject& subject) {
  const Graph& graph = module.graphs[subject.graph];
  std::string text = "@" + graph.name();
  std::optional<ValueId> value;
  switch (subject.kind) {
    case Subject::Kind::kGraph: break;
    case Subject::Kind::kInput: value = graph.inputs()[subject.index].value; break;
    case Subject::Kind::kOutput: value = graph.outputs()[subject.index].value; break;
    default:
      if (graph[NodeId(subject.index)].result_count > 0)
        value = graph[NodeId(subject.index)].first_result;
  }
  if (value) text += fmt::format(" %{}", graph.name(*value));
  return text;
}

}  // namespace

std::vector<Finding> FindErrors(const Module& module) {
  std::vector<Finding> findings;
  for (size_t g = 0; g < module.graphs.size(); ++g) GraphVerifier(module, g, findings).Run();
  return findings;
}

Status Verify(const Module& module) {
  std::vector<Finding> findings = FindErrors(module);
  if (findings.empty()) return Done{};
  Failure failure;
  for (Finding& finding : findings) {
    finding.diagnostic.file = Describe(module, finding.subject);
    failure.diagnostics.push_back(std::move(finding.diagnostic));
  }
  return failure;
}

Diagnostics VerifyParsed(const Parsed& parsed) {
  SourceText text(parsed.source.file, parsed.source.text);
  Diagnostics diagnostics;
  for (Finding& finding : FindErrors(parsed.module)) {
    TextRange range = LocateSubject(parsed.source, finding.subject);
    diagnostics.push_back(text.At(std::move(finding.diagnostic), range.offset, range.width));
  }
  return diagnostics;
}

}  // namespace heddle
