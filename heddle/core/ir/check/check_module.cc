#include "heddle/core/ir/check/check_module.h"

#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/check_impl.h"
#include "heddle/core/ir/cycle.h"
#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/ir/text/locate.h"
#include "heddle/core/ir/text/print.h"

namespace heddle {
namespace {

class NodeVerifier {
 public:
  explicit NodeVerifier(GraphReport& report)
      : report_(report),
        module_(report.module()),
        graph_(report.graph()),
        symbols_(graph_.types().symbols()) {}

  void Run() {
    for (NodeId id : graph_.nodes()) CheckNode(id);
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
        report_.AddOperand(id, operand, Diag::kUseBeforeDefinition,
                           "`%{}` is used by node {} and defined by node {}", graph_.name(value),
                           id.index(), producer.index());
        continue;
      }
      std::string text;
      for (NodeId step : path) text += fmt::format("%{} -> ", graph_.name(graph_.results(step)[0]));
      report_.AddOperand(id, operand, Diag::kCycle, "`%{}` depends on itself: {}%{}",
                         graph_.name(value), text, graph_.name(graph_.results(path[0])[0]));
    }
  }

 private:
  void CheckNode(NodeId id) {
    const Node& node = graph_[id];
    // The parser has already reported a line that it could not read.
    if (!node.op || !CheckOperands(id)) return;
    if (node.op == kOpaqueOp) {
      CheckOpaque(id);
    } else if (!IsKnown(id) && CheckOperandKinds(id)) {
      CheckTypes(id);
    }
  }

  // Whether all operands are defined before the node, with types.
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
    return types_known;
  }

  void CheckOpaque(NodeId id) {
    std::span<const ValueId> operands = graph_.operands(id);
    size_t passed = 0;
    for (const OpaqueSlot& slot : graph_.attrs(id).opaque_slots) passed += slot.count;
    if (passed != operands.size()) {
      report_.AddNode(id, Diag::kOperandCount, "the node has {} operands, its call passes {}",
                      operands.size(), passed);
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] && graph_.types().is_async(graph_.type(operands[i]))) ReportAsync(id, i);
    }
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
    if (at != operands.size() || lists != attrs.list_sizes.size()) {
      report_.AddNode(id, Diag::kOperandCount,
                      "the node has {} operands, which its schema does not take", operands.size());
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
      report_.AddOperand(id, i, Diag::kOperandKind, "`{}` is {}, not none", arg.name,
                         Describe(arg.kind));
      return false;
    }
    bool async = graph_.types().is_async(graph_.type(value));
    if (async == (arg.kind == ArgKind::kAsync)) return true;
    if (async) {
      ReportAsync(id, i);
    } else {
      report_.AddOperand(id, i, Diag::kAsyncUse,
                         "`%{}` is {}, which cannot be waited for; expected an async value",
                         graph_.name(value), report_.TypeText(graph_.type(value)));
    }
    return false;
  }

  void ReportAsync(NodeId id, size_t i) {
    ValueId value = graph_.operands(id)[i];
    report_.AddOperand(id, i, Diag::kAsyncUse, "`%{}` is {}; it is used before a `comm.wait` on it",
                       graph_.name(value), report_.TypeText(graph_.type(value)));
  }

  // Whether an equal node was valid before: one with the same op, attributes, and types of operands
  // and results.
  bool IsKnown(NodeId id) {
    key_.Assign(graph_, id);
    known_ = calls_.Find(key_);
    IdRange<ValueId> results = graph_.results(id);
    bool equal = known_ != nullptr && known_->size() == results.size();
    for (size_t i = 0; equal && i < results.size(); ++i)
      equal = (*known_)[i] == graph_.type(results[i]);
    return equal;
  }

  // For the node that IsKnown was last called with.
  void CheckTypes(NodeId id) {
    if (!CheckInferred(id) || known_ != nullptr) return;
    std::vector<TypeId> types;
    for (ValueId v : graph_.results(id)) types.push_back(graph_.type(v));
    calls_.Add(key_, std::move(types));
  }

  bool CheckInferred(NodeId id) {
    const Op& op = graph_.op(id);
    if (!CheckView(id) || !CheckAttrs(id)) return false;
    OpArgs args(op, graph_.attrs(id), module_.mesh, symbols_,
                OperandTypes(graph_, graph_.operands(id)));
    Result<Types> inferred = InferTypes(args);
    if (!inferred.ok()) {
      const Diagnostic& why = inferred.diagnostics()[0];
      report_.AddNode(id, why.kind, "{}", why.message);
      return false;
    }
    IdRange<ValueId> results = graph_.results(id);
    if (inferred->size() != results.size()) {
      report_.AddNode(id, Diag::kResultCount, "the op has {}, the node has {}",
                      Counted(static_cast<int64_t>(inferred->size()), "result"), results.size());
      return false;
    }
    bool ok = true;
    for (size_t i = 0; i < results.size(); ++i) {
      TypeId type = graph_.type(results[i]);
      if (!type || graph_.types()[type] == (*inferred)[i]) continue;
      report_.Add(Subject::Kind::kResult, id.index(), i, Diag::kResultType,
                  "{}: `%{}` is {}, the op computes {}", op.name(), graph_.name(results[i]),
                  report_.TypeText(type), FormatType((*inferred)[i], module_.mesh, symbols_));
      ok = false;
    }
    return ok;
  }

  bool CheckView(NodeId id) {
    std::optional<View> only = graph_.op(id).def->view;
    if (!only || *only == module_.view) return true;
    report_.AddNode(id, Diag::kOpView, "the op is in a {} module, but requires a {} one",
                    Name(module_.view), Name(*only));
    return false;
  }

  bool CheckAttrs(NodeId id) {
    const Op& op = graph_.op(id);
    const Attrs& attrs = graph_.attrs(id);
    size_t known = 0;
    for (const Arg& arg : op.schema.args) {
      if (!IsAttribute(arg.kind)) continue;
      const AttrValue* value = attrs.Find(arg.name);
      known += value != nullptr;
      if (value == nullptr) {
        if (arg.has_default) continue;
        report_.Add(Subject::Kind::kNode, id.index(), 0, Diag::kMissingAttr,
                    "{} needs attribute `{}`, {}", op.name(), arg.name, Describe(arg.kind));
        return false;
      }
      if (!ConvertAttr(arg, *value)) {
        report_.Add(Subject::Kind::kNode, id.index(), 0, Diag::kAttrKind,
                    "attribute `{}` of {} is {}", arg.name, op.name(), Describe(arg.kind));
        return false;
      }
      if (Status each = CheckEach(op, arg, *value, attrs); !each.ok()) {
        report_.Add(Subject::Kind::kNode, id.index(), 0, each.diagnostics()[0].kind, "{}",
                    each.diagnostics()[0].message);
        return false;
      }
    }
    if (known != attrs.list.size()) {
      report_.AddNode(id, Diag::kUnknownAttr, "the node has an attribute that its schema lacks");
      return false;
    }
    if (CanonicalAttrs(op, attrs) == attrs) return true;
    report_.AddNode(id, Diag::kAttrOrder,
                    "attributes are not in the order of the schema, or state a default");
    return false;
  }

  GraphReport& report_;
  const Module& module_;
  const Graph& graph_;
  // A copy: shape rules may add symbols.
  SymbolTable symbols_;
  std::vector<std::pair<NodeId, uint32_t>> early_uses_;
  CallKey key_;
  // Result types of valid calls.
  CallTable<std::vector<TypeId>> calls_;
  // For the call in key_; null if no equal call was valid.
  const std::vector<TypeId>* known_ = nullptr;
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
  FindingList findings;
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    GraphReport report(module, g, findings);
    CheckSignature(report);
    NodeVerifier nodes(report);
    nodes.Run();
    CheckOrder(report);
    nodes.ReportUsesBeforeDefinition();
  }
  CheckSaved(module, findings);
  if (findings.more > 0) {
    findings.list.push_back(
        {Subject(),
         MakeDiagnostic(Diag::kManyMistakes, "{} more mistakes are not shown", findings.more)});
  }
  return std::move(findings.list);
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
    if (finding.diagnostic.kind == Diag::kManyMistakes) {
      diagnostics.push_back(std::move(finding.diagnostic));
      continue;
    }
    TextRange range = LocateSubject(parsed.source, finding.subject);
    diagnostics.push_back(text.At(std::move(finding.diagnostic), range.offset, range.width));
  }
  return diagnostics;
}

}  // namespace heddle
