#include "heddle/import/roles.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/core/ops/ops.h"
#include "heddle/import/given_params.h"

namespace heddle {
namespace {

// The number in a name from AOTAutograd: 12 in `primals_12` for the prefix `primals_`; -1 for any
// other name.
int64_t NumberBehind(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  int64_t number = -1;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() && number > 0 ? number : -1;
}

class RoleSetter {
 public:
  // `given`: whether each input is a parameter; empty if the user named none.
  RoleSetter(const ForeignProgram& program, std::vector<bool> given, Imported& imported)
      : program_(program),
        given_(std::move(given)),
        imported_(imported),
        graph_(imported.module.graphs[0]) {}

  void Run() {
    FindRoots();
    if (program_.has_signature) {
      RolesOfSignature();
    } else if (!given_.empty()) {
      RolesAsGiven();
    } else if (FindNumbers()) {
      RolesOfNames();
    }
    // Either all inputs and outputs have a role, or none has.
    bool roles = std::ranges::any_of(
        graph_.outputs(), [](const Output& output) { return output.role != OutputRole::kPlain; });
    for (Output& output : graph_.mutable_outputs()) {
      if (roles && output.role == OutputRole::kPlain) output.role = OutputRole::kMetric;
    }
    if (!has_grads_ && collectives_.empty()) return;
    FindGradientEnds();
    Rewriter rewriter(graph_);
    SetPhases(rewriter);
    SetPurposes(rewriter);
    rewriter.Commit();
  }

 private:
  // The only tensor that a node reads, or none if it reads several.
  ValueId OnlyOperand(NodeId node) const {
    ValueId only;
    for (ValueId operand : graph_.operands(node)) {
      if (!operand) continue;
      if (only) return ValueId();
      only = operand;
    }
    return only;
  }

  // For each value, the input that it derives from through ops with one operand. Also collects the
  // collectives.
  void FindRoots() {
    roots_.assign(graph_.value_count(), ValueId());
    for (const Input& input : graph_.inputs()) roots_[input.value.index()] = input.value;
    for (NodeId node : graph_.nodes()) {
      OpId op = graph_[node].op;
      bool mixes = Reduces(op) || op == op::comm_all_to_all;
      if (mixes || op == op::comm_all_gather) collectives_.push_back(node);
      if (mixes || op == kOpaqueOp) continue;
      ValueId only = OnlyOperand(node);
      if (!only) continue;
      for (ValueId result : graph_.results(node)) roots_[result.index()] = roots_[only.index()];
    }
  }

  DType DTypeOf(ValueId value) const { return graph_.types().dtype(graph_.type(value)); }

  // --- Roles

  void RolesOfSignature() {
    std::vector<Input>& inputs = graph_.mutable_inputs();
    Table<WordId, ValueId> by_label(program_.words.size());
    int64_t params = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ForeignInput& given = program_.inputs[i];
      inputs[i].role = given.role == InputRole::kPlain ? InputRole::kBatch : given.role;
      inputs[i].label = program_.text(given.label);
      inputs[i].unit = program_.text(given.unit);
      if (given.role == InputRole::kParam)
        inputs[i].index = given.index < 0 ? params++ : given.index;
      if (given.role == InputRole::kOpt) inputs[i].index = given.index;
      // The name of an input always stands for it. State of several parameters has one label.
      if (given.label && given.role != InputRole::kOpt) by_label[given.label] = ValueId(i);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      ValueId& known = by_label[program_.inputs[i].name];
      if (!known) known = ValueId(i);
    }
    std::vector<Output>& outputs = graph_.mutable_outputs();
    size_t at = 0;
    for (const ForeignOutput& given : program_.outputs) {
      if (given.value.kind == ForeignValue::Kind::kNone) continue;
      Output& output = outputs[at++];
      ValueId target = given.input    ? ValueId(*given.input)
                       : given.target ? by_label[given.target]
                                      : ValueId();
      output.role = given.role == OutputRole::kPlain ? OutputRole::kMetric : given.role;
      output.label = program_.text(given.label);
      if (given.role == OutputRole::kGrad) {
        if (target && inputs[target.index()].role == InputRole::kParam) {
          output.index = inputs[target.index()].index;
          has_grads_ = true;
        } else {
          // The gradient of a batch, for which no role exists.
          output.role = OutputRole::kMetric;
        }
      } else if (given.role == OutputRole::kUpdate) {
        output.target = target;
        if (!target) output.role = OutputRole::kMetric;
      }
    }
  }

  // The user names the parameters. Consecutive outputs with the shapes of all parameters, in their
  // order, are their gradients. A step returns them last.
  void RolesAsGiven() {
    std::vector<ValueId> params;
    for (Input& input : graph_.mutable_inputs()) {
      input.label = graph_.name(input.value);
      bool constant = input.label.starts_with("_tensor_constant");
      input.role = constant ? InputRole::kBuffer : InputRole::kBatch;
      if (!given_[input.value.index()]) continue;
      input.role = InputRole::kParam;
      input.index = static_cast<int64_t>(params.size());
      params.push_back(input.value);
    }
    std::vector<Output>& outputs = graph_.mutable_outputs();
    for (Output& output : outputs) {
      if (output.role == OutputRole::kPlain) output.role = OutputRole::kMetric;
    }
    size_t first = imported_.counts.outputs + 1;
    auto are_gradients = [&](size_t begin) {
      for (size_t i = 0; i < params.size(); ++i) {
        if (!SameDims(params[i], outputs[begin + i].value)) return false;
      }
      return true;
    };
    while (first-- > 0) {
      if (first + params.size() <= imported_.counts.outputs && are_gradients(first)) break;
    }
    has_grads_ = first != SIZE_MAX;
    if (has_grads_) {
      for (size_t i = 0; i < params.size(); ++i) {
        outputs[first + i].role = OutputRole::kGrad;
        outputs[first + i].index = static_cast<int64_t>(i);
      }
      Output& loss = outputs[0];
      bool scalar = graph_.types().rank(graph_.type(loss.value)) == 0;
      if (first > 0 && scalar && IsFloat(DTypeOf(loss.value))) loss.role = OutputRole::kLoss;
    }
    imported_.remarks.push_back(
        has_grads_
            ? fmt::format("outputs {} to {} have the shapes of the {} (--params), in their order, "
                          "and are assumed to be their gradients",
                          first, first + params.size() - 1, Counted(params.size(), "parameter"))
            : fmt::format("no consecutive outputs have the shapes of the {} (--params): the graph "
                          "is assumed to be a forward graph",
                          Counted(params.size(), "parameter")));
  }

  // Whether any input has such a name.
  bool FindNumbers() {
    bool any = false;
    for (const ForeignInput& input : program_.inputs) {
      std::string_view name = program_.text(input.name);
      primals_.push_back(NumberBehind("primals_", name));
      tangents_.push_back(NumberBehind("tangents_", name) > 0);
      has_tangents_ |= tangents_.back();
      any |= primals_.back() > 0 || has_tangents_;
    }
    return any;
  }

  // AOTAutograd names inputs `primals_N` and `tangents_N`; all other inputs were saved by a forward
  // graph. A backward graph returns a gradient for each primal, in their order. A joint graph
  // returns them after its other outputs.
  void RolesOfNames() {
    bool backward = has_tangents_;
    if (backward) {
      PairGradients();
    } else {
      outputs_saved_ = graph_.outputs().size() > 1;
    }
    bool gathers = false;
    gathered_.resize(graph_.inputs().size());
    for (NodeId node : collectives_) {
      ValueId only = OnlyOperand(node);
      if (graph_[node].op != op::comm_all_gather || !only || !roots_[only.index()]) continue;
      gathered_[roots_[only.index()].index()] = true;
      gathers = true;
    }
    SetInputsByName(backward, gathers);
    SetOutputsByName(backward);
    imported_.remarks.push_back(fmt::format(
        "roles are derived from names and uses, because the file has no signature: {}, {}",
        backward ? "a backward graph" : "a forward graph", Counted(params_, "parameter")));
  }

  // Finds the primal of each gradient among the outputs.
  void PairGradients() {
    std::vector<bool> depends(graph_.value_count());
    std::map<int64_t, ValueId> primals;
    with_gradient_.resize(graph_.inputs().size());
    for (const Input& input : graph_.inputs()) {
      size_t i = input.value.index();
      depends[i] = tangents_[i];
      if (primals_[i] > 0) primals.insert_or_assign(primals.end(), primals_[i], input.value);
    }
    gradient_of_.resize(graph_.outputs().size());
    for (NodeId node : graph_.nodes()) {
      bool any = std::ranges::any_of(graph_.operands(node),
                                     [&](ValueId v) { return v && depends[v.index()]; });
      for (ValueId result : graph_.results(node)) depends[result.index()] = any;
    }
    size_t updates = graph_.outputs().size() - imported_.counts.outputs;
    size_t at = 0;
    size_t before = 0;
    for (size_t i = 0; i < graph_.outputs().size() - updates; ++i)
      joint_ |= !depends[graph_.outputs()[i].value.index()];
    if (joint_ && program_.outputs.size() > primals.size())
      before = program_.outputs.size() - primals.size();
    for (size_t position = 0; position < program_.outputs.size(); ++position) {
      if (program_.outputs[position].value.kind == ForeignValue::Kind::kNone) continue;
      size_t output = at++;
      if (position < before) continue;
      auto number = static_cast<int64_t>(position - before) + 1;
      ValueId value = graph_.outputs()[output].value;
      auto primal = primals.find(number);
      bool fits = primal == primals.end() || SameDims(primal->second, value);
      if (!fits || !depends[value.index()]) continue;
      gradient_of_[output] = number;
      if (primal != primals.end()) with_gradient_[primal->second.index()] = true;
    }
  }

  bool SameDims(ValueId a, ValueId b) const {
    const TypeTable& types = graph_.types();
    return std::ranges::equal(types.dims(graph_.type(a)), types.dims(graph_.type(b)));
  }

  void SetInputsByName(bool backward, bool gathers) {
    for (Input& input : graph_.mutable_inputs()) {
      std::string_view name = graph_.name(input.value);
      input.label = name;
      DType dtype = DTypeOf(input.value);
      int64_t number = primals_[input.value.index()];
      bool gathered = gathered_[input.value.index()];
      bool trains =
          backward ? with_gradient_[input.value.index()] : (gathered || !gathers) && IsFloat(dtype);
      if (tangents_[input.value.index()]) {
        input.role = InputRole::kTangent;
      } else if (number > 0 && trains) {
        input.role = InputRole::kParam;
        input.index = number - 1;
        ++params_;
      } else if (name.starts_with("_tensor_constant")) {
        input.role = InputRole::kBuffer;
      } else if (backward && !joint_) {
        input.role = InputRole::kSaved;
      } else {
        input.role = dtype == DType::kI64 ? InputRole::kBatch : InputRole::kBuffer;
      }
    }
  }

  void SetOutputsByName(bool backward) {
    std::vector<bool> labelled(graph_.value_count());
    std::vector<Output>& outputs = graph_.mutable_outputs();
    for (size_t i = 0; i < outputs.size(); ++i) {
      Output& output = outputs[i];
      if (output.role == OutputRole::kUpdate) continue;
      if (int64_t number = backward ? gradient_of_[i] : 0; number > 0) {
        output.role = OutputRole::kGrad;
        output.index = number - 1;
        has_grads_ = true;
      } else if (outputs_saved_ && !backward && i > 0) {
        output.role = OutputRole::kSaved;
        // The first output of a value has the value's name as its label.
        if (!labelled[output.value.index()]) output.label = graph_.name(output.value);
        labelled[output.value.index()] = true;
      } else {
        output.role = OutputRole::kMetric;
      }
    }
  }

  // --- Phases and purposes

  // For each value whether it becomes a gradient, through ops with one operand.
  void FindGradientEnds() {
    ends_.assign(graph_.value_count(), false);
    bool any = false;
    for (const Output& output : graph_.outputs()) {
      if (output.role != OutputRole::kGrad) continue;
      ends_[output.value.index()] = true;
      any = true;
    }
    if (!any) return;
    for (size_t n = graph_.node_count(); n-- > 0;) {
      NodeId node(n);
      ValueId only = OnlyOperand(node);
      if (!only || graph_[node].op == kOpaqueOp) continue;
      bool ends =
          std::ranges::any_of(graph_.results(node), [&](ValueId v) { return ends_[v.index()]; });
      if (ends) ends_[only.index()] = true;
    }
  }

  // Inputs of outputs that are not gradients are forward; other nodes are backward.
  void SetPhases(Rewriter& rewriter) {
    if (!has_grads_) return;
    bool given = std::ranges::any_of(
        program_.calls, [](const ForeignCall& call) { return call.phase.has_value(); });
    if (given) return;
    std::vector<bool> forward(graph_.value_count());
    for (const Output& output : graph_.outputs())
      forward[output.value.index()] = output.role != OutputRole::kGrad;
    for (size_t n = graph_.node_count(); n-- > 0;) {
      NodeId node(n);
      bool any =
          std::ranges::any_of(graph_.results(node), [&](ValueId v) { return forward[v.index()]; });
      if (!any) {
        rewriter.SetPhase(node, Phase::kBackward);
        continue;
      }
      for (ValueId operand : graph_.operands(node)) {
        if (operand) forward[operand.index()] = true;
      }
    }
  }

  bool IsParameter(ValueId input) const {
    if (!input) return false;
    // Without roles, any floating-point input may be a parameter.
    const Input& facts = graph_.inputs()[input.index()];
    return facts.role == InputRole::kParam ||
           (facts.role == InputRole::kPlain && IsFloat(DTypeOf(input)));
  }

  void SetPurposes(Rewriter& rewriter) {
    std::set<Axes> exchanged;
    for (NodeId node : collectives_) {
      if (graph_[node].op == op::comm_all_to_all)
        exchanged.insert(std::get<Axes>(*graph_.attrs(node).Find("over")));
    }
    for (NodeId node : collectives_) {
      OpId op = graph_[node].op;
      const Attrs& attrs = graph_.attrs(node);
      bool unshard = op == op::comm_all_gather &&
                     std::ranges::all_of(graph_.operands(node),
                                         [&](ValueId v) { return IsParameter(roots_[v.index()]); });
      bool grad = Reduces(op) && ends_[graph_[node].first_result.index()];
      Why why = unshard                                                   ? Why::kUnshard
                : grad                                                    ? Why::kGrad
                : exchanged.contains(std::get<Axes>(*attrs.Find("over"))) ? Why::kExpert
                                                                          : Why::kTensor;
      if (why != Why::kTensor) rewriter.SetAttrs(node, WithPurpose(graph_[node].attrs, why));
    }
  }

  // Equal collectives share one attribute list.
  AttrsId WithPurpose(AttrsId given, Why why) {
    AttrsId& changed = with_purpose_[{given, why}];
    if (!changed) {
      Attrs attrs = graph_.attrs_table()[given];
      attrs.Set("why", why);
      changed = graph_.InternAttrs(attrs);
    }
    return changed;
  }

  const ForeignProgram& program_;
  std::vector<bool> given_;
  Imported& imported_;
  Graph& graph_;
  std::vector<ValueId> roots_;
  // In graph order.
  std::vector<NodeId> collectives_;
  std::vector<bool> ends_;
  // Indexed by input: the number of a primal, or -1.
  std::vector<int64_t> primals_;
  std::vector<bool> tangents_;
  bool has_tangents_ = false;
  std::vector<bool> gathered_;
  std::vector<bool> with_gradient_;
  // For a backward graph, indexed by output: the number of the primal, or 0.
  std::vector<int64_t> gradient_of_;
  std::map<std::pair<AttrsId, Why>, AttrsId> with_purpose_;
  bool joint_ = false;
  bool outputs_saved_ = false;
  bool has_grads_ = false;
  size_t params_ = 0;
};

}  // namespace

Status SetRoles(const ForeignProgram& program, const ImportOptions& options, Imported& imported) {
  HEDDLE_TRY(std::vector<bool> given, FindGivenParams(program, imported, options.params));
  RoleSetter(program, std::move(given), imported).Run();
  return Done{};
}

}  // namespace heddle
