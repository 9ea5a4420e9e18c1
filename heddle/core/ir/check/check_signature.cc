#include <algorithm>
#include <optional>
#include <tuple>

#include "heddle/core/ir/check/check_impl.h"

namespace heddle {
namespace {

// Describes the error in a placement for a value of this shape; empty if it is valid.
std::string PlacementFault(const Placement& placement, std::span<const Dim> dims,
                           const Mesh& mesh) {
  if (placement.splits.size() > dims.size())
    return "is split along a dimension that it does not have";
  Axes seen;
  std::string fault;
  auto add = [&](AxisId axis) {
    if (axis >= mesh.axes().size()) {
      fault = fmt::format("is split over axis {}, but the mesh has {}", axis, mesh.axes().size());
    } else if (!seen.Add(axis)) {
      fault = fmt::format("has mesh axis `{}` twice in its placement", mesh[axis].name);
    }
  };
  for (size_t d = 0; d < placement.splits.size(); ++d) {
    for (AxisId axis : placement.splits[d]) add(axis);
    if (!placement.splits[d].empty() && IsSymbol(dims[d]))
      fault = fmt::format("is split along dimension {}, whose size is known only at run time", d);
  }
  for (const Partial& partial : placement.partials) add(partial.axis);
  return fault;
}

class SignatureVerifier {
 public:
  explicit SignatureVerifier(GraphReport& report)
      : report_(report),
        module_(report.module()),
        graph_(report.graph()),
        good_axes_(graph_.placements().size(), false) {}

  void Run() {
    CheckRegions();
    if (module_.view == View::kGlobal) FindChunkTypes();
    for (ValueId id : graph_.values()) CheckValue(id);
    CheckInputs();
    CheckOutputs();
  }

 private:
  // --- Regions and values

  void CheckRegions() {
    if (graph_.regions().empty()) return;
    if (module_.view == View::kLocal) {
      report_.Add(
          Subject::Kind::kGraph, 0, 0, Diag::kPlacement,
          "scope `{}` has a region, but the graph is local; only global graphs have regions",
          graph_.scope_name(graph_.regions()[0].scope));
      return;
    }
    for (const Region& region : graph_.regions()) {
      for (AxisId axis : region.local) {
        if (axis < module_.mesh.axes().size()) continue;
        report_.Add(Subject::Kind::kGraph, 0, 0, Diag::kPlacement,
                    "scope `{}` is local over axis {} of a mesh that has {}",
                    graph_.scope_name(region.scope), axis, module_.mesh.axes().size());
      }
    }
  }

  // Finds types with a rank's part of a size. In a global text they would look like splits.
  void FindChunkTypes() {
    const TypeTable& types = graph_.types();
    auto is_chunk = [&](Dim dim) { return IsSymbol(dim) && types.symbols()[dim].is_chunk(); };
    for (size_t t = 0; t < types.size(); ++t) {
      bool chunk = std::ranges::any_of(types.dims(TypeId(t)), is_chunk);
      for (TypeId element : types.elements(TypeId(t))) chunk |= has_chunk_[element.index()];
      has_chunk_.push_back(chunk);
    }
  }

  void ReportValue(ValueId id, Diag diag, std::string_view text) {
    NodeId producer = graph_[id].producer;
    if (producer) {
      report_.Add(Subject::Kind::kResult, producer.index(),
                  id.index() - graph_[producer].first_result.index(), diag, "`%{}` {}",
                  graph_.name(id), text);
    } else {
      report_.AddInput(id.index(), diag, "`%{}` {}", graph_.name(id), text);
    }
  }

  void CheckValue(ValueId id) {
    const Value& value = graph_[id];
    if (!value.type) return;
    if (!has_chunk_.empty() && has_chunk_[value.type.index()]) {
      ReportValue(id, Diag::kPlacement,
                  fmt::format("is {}, a rank's part; a global graph has whole sizes",
                              report_.TypeText(value.type)));
    }
    if (value.placement == PlacementTable::kReplicated) return;
    if (graph_.types().is_async(value.type)) {
      ReportValue(id, Diag::kAsyncPlacement, "is async and has a placement; only tensors have one");
      return;
    }
    if (module_.view == View::kLocal)
      ReportValue(id, Diag::kPlacement, "has a placement, but the graph is local");
    const Placement& placement = graph_.placements()[value.placement];
    std::span<const Dim> dims = graph_.types().dims(value.type);
    // Each placement's axes are checked once.
    bool fits = placement.splits.size() <= dims.size() && std::ranges::none_of(dims, IsSymbol);
    if (fits && good_axes_[value.placement.index()]) return;
    std::string fault = PlacementFault(placement, dims, module_.mesh);
    if (!fault.empty()) ReportValue(id, Diag::kPlacement, fault);
    good_axes_[value.placement.index()] = fault.empty();
  }

  // Checks the global type that a local value states.
  std::string GlobalFault(const GlobalType& global) const {
    if (!global.type) return {};
    return PlacementFault(graph_.placements()[global.placement], graph_.types().dims(global.type),
                          module_.mesh);
  }

  // --- Inputs

  void CheckInputs() {
    const std::vector<Input>& inputs = graph_.inputs();
    FindParams();
    param_labels_.Reserve(params_.size(), 0);
    bool roles =
        std::ranges::any_of(inputs, [](const Input& i) { return i.role != InputRole::kPlain; });
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Input& input = inputs[i];
      std::string_view name = graph_.name(input.value);
      if (graph_.types().is_async(graph_.type(input.value)))
        report_.AddInput(i, Diag::kAsyncUse, "input `%{}` is async; a graph starts with tensors",
                         name);
      if (roles && input.role == InputRole::kPlain)
        report_.AddInput(i, Diag::kLostRole, "input `%{}` has no role, but other inputs have one",
                         name);
      if (std::string fault = GlobalFault(input.global); !fault.empty())
        report_.AddInput(i, Diag::kPlacement, "`%{}` on the whole mesh {}", name, fault);
      if (input.role == InputRole::kParam) CheckParam(i);
      is_part_ |= input.role == InputRole::kSaved || input.role == InputRole::kTangent;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].role != InputRole::kOpt || ParamOf(inputs[i].index)) continue;
      report_.AddInput(i, Diag::kLostRole, "`%{}` is state of parameter {}, which is not an input",
                       graph_.name(inputs[i].value), inputs[i].index);
    }
  }

  void FindParams() {
    const std::vector<Input>& inputs = graph_.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].role == InputRole::kParam) params_.emplace_back(inputs[i].index, i);
    }
    std::ranges::sort(params_);
    auto number = &std::pair<int64_t, size_t>::first;
    params_repeat_ = std::ranges::adjacent_find(params_, {}, number) != params_.end();
  }

  // The first input that is this parameter.
  std::optional<size_t> ParamOf(int64_t number) const {
    auto at = std::ranges::lower_bound(params_, std::pair(number, size_t{0}));
    if (at == params_.end() || at->first != number) return std::nullopt;
    return at->second;
  }

  void CheckParam(size_t i) {
    const std::vector<Input>& inputs = graph_.inputs();
    const Input& input = inputs[i];
    if (input.index < 0)
      report_.AddInput(i, Diag::kLostRole, "parameter `%{}` has no number",
                       graph_.name(input.value));
    if (size_t first = params_repeat_ ? *ParamOf(input.index) : i; first != i) {
      report_.AddInput(i, Diag::kDuplicateRole, "parameter {} is input `%{}` and input `%{}`",
                       input.index, graph_.name(inputs[first].value), graph_.name(input.value));
    }
    if (input.label.empty()) return;
    size_t label = param_labels_.Intern(input.label).index();
    if (label == labelled_.size()) {
      labelled_.push_back(i);
    } else {
      report_.AddInput(i, Diag::kDuplicateRole, "parameters {} and {} are both named \"{}\"",
                       inputs[labelled_[label]].index, input.index, input.label);
    }
  }

  // --- Outputs

  void CheckOutputs() {
    const std::vector<Output>& outputs = graph_.outputs();
    bool roles =
        std::ranges::any_of(outputs, [](const Output& o) { return o.role != OutputRole::kPlain; });
    // Role, its number or target, and output.
    std::vector<std::tuple<OutputRole, int64_t, size_t>> taken;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Output& output = outputs[i];
      // Reported by the parser.
      if (!output.value) continue;
      std::string_view name = graph_.name(output.value);
      if (graph_.type(output.value) && graph_.types().is_async(graph_.type(output.value)))
        report_.AddOutput(i, Diag::kAsyncUse,
                          "output `%{}` is async; it is returned before a `comm.wait` on it", name);
      if (roles && output.role == OutputRole::kPlain)
        report_.AddOutput(i, Diag::kLostRole,
                          "output `%{}` has no role, but other outputs have one", name);
      if (std::string fault = GlobalFault(output.global); !fault.empty())
        report_.AddOutput(i, Diag::kPlacement, "`%{}` on the whole mesh {}", name, fault);
      int64_t key = output.role == OutputRole::kUpdate ? output.target.index() : output.index;
      bool unique = output.role == OutputRole::kGrad || output.role == OutputRole::kUpdate ||
                    output.role == OutputRole::kLoss;
      if (unique) taken.emplace_back(output.role, key, i);
      CheckTarget(i);
    }
    std::ranges::sort(taken);
    for (size_t t = 1; t < taken.size(); ++t) {
      const auto& [role, key, i] = taken[t];
      if (role != std::get<0>(taken[t - 1]) || key != std::get<1>(taken[t - 1])) continue;
      report_.AddOutput(i, Diag::kDuplicateRole,
                        "output `%{}` has a role that another output has: {}{}",
                        graph_.name(outputs[i].value), Name(role),
                        outputs[i].index >= 0 ? fmt::format(" {}", outputs[i].index) : "");
    }
  }

  // The input that an update or a gradient belongs to. Its absence may be an error.
  ValueId TargetOf(size_t i) {
    const Output& output = graph_.outputs()[i];
    bool is_input = output.target && !graph_[output.target].producer;
    if (output.role == OutputRole::kUpdate && !is_input) {
      report_.AddOutput(i, Diag::kLostRole, "`update` of {}, which is not an input",
                        output.target ? fmt::format("`%{}`", graph_.name(output.target)) : "none");
      return ValueId();
    }
    if (output.role != OutputRole::kGrad) return output.target;
    // A backward graph may have been split from the graph that holds the parameters.
    if (std::optional<size_t> param = ParamOf(output.index)) return graph_.inputs()[*param].value;
    if (output.index < 0 || (!params_.empty() && !is_part_))
      report_.AddOutput(i, Diag::kLostRole, "`grad {}` of a parameter that is not an input",
                        output.index);
    return ValueId();
  }

  void CheckTarget(size_t i) {
    const Output& output = graph_.outputs()[i];
    ValueId target = TargetOf(i);
    if (!target || !graph_.type(output.value) || !graph_.type(target)) return;
    // A gradient may have another element type than its parameter, but not another shape.
    auto dims = [&](ValueId v) { return graph_.types().dims(graph_.type(v)); };
    bool fits = output.role == OutputRole::kGrad
                    ? std::ranges::equal(dims(output.value), dims(target))
                    : graph_.type(output.value) == graph_.type(target);
    if (fits || graph_.types().is_async(graph_.type(output.value))) return;
    report_.AddOutput(i, Diag::kRoleType, "`%{}` is {}, but its input `%{}` is {}",
                      graph_.name(output.value), report_.TypeText(graph_.type(output.value)),
                      graph_.name(target), report_.TypeText(graph_.type(target)));
  }

  GraphReport& report_;
  const Module& module_;
  const Graph& graph_;
  // In a global graph, indexed by type.
  std::vector<bool> has_chunk_;
  // Indexed by placement: whether its axes are distinct axes of the mesh.
  std::vector<bool> good_axes_;
  // The graph reads values of another graph, so it is a part of a step.
  bool is_part_ = false;
  // Parameter number and input, sorted.
  std::vector<std::pair<int64_t, size_t>> params_;
  // Two inputs are the same parameter.
  bool params_repeat_ = false;
  // Labels of parameters, and the first input with each.
  StringTable<Id<struct LabelTag>> param_labels_;
  std::vector<size_t> labelled_;
};

// A value that one graph saves for later graphs.
struct SavedOutput {
  size_t graph;
  size_t output;
};

bool SameType(const Graph& a, ValueId x, const Graph& b, ValueId y) {
  return SameType(a.types(), a.type(x), b.types(), b.type(y)) &&
         a.placements()[a[x].placement] == b.placements()[b[y].placement];
}

}  // namespace

void CheckSignature(GraphReport& report) { SignatureVerifier(report).Run(); }

void CheckSaved(const Module& module, FindingList& findings) {
  // Indexed by label. Only later graphs may read them.
  StringTable<Id<struct SavedTag>> labels;
  std::vector<SavedOutput> saved;
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    const Graph& graph = module.graphs[g];
    GraphReport report(module, g, findings);
    StringTable<Id<struct TakenTag>> taken;
    size_t more = std::ranges::count(graph.outputs(), OutputRole::kSaved, &Output::role);
    labels.Reserve(labels.size() + more, 0);
    taken.Reserve(std::ranges::count(graph.inputs(), InputRole::kSaved, &Input::role), 0);
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const Input& input = graph.inputs()[i];
      if (input.role != InputRole::kSaved) continue;
      size_t distinct = taken.size();
      if (!input.label.empty() && taken.Intern(input.label).index() < distinct)
        report.AddInput(i, Diag::kDuplicateRole, "two inputs of `@{}` are `saved \"{}\"`",
                        input.label, graph.name());
      // A single graph may be split from one that is absent.
      if (module.graphs.size() == 1) continue;
      Id<SavedTag> label = labels.Find(input.label);
      if (input.label.empty() || !label) {
        report.AddInput(i, Diag::kLostRole,
                        "`%{}` is `saved \"{}\"`, which no graph before `@{}` saves",
                        graph.name(input.value), input.label, graph.name());
        continue;
      }
      const SavedOutput& output = saved[label.index()];
      const Graph& source = module.graphs[output.graph];
      ValueId value = source.outputs()[output.output].value;
      bool typed = value && source.type(value) && graph.type(input.value);
      if (!typed || SameType(source, value, graph, input.value)) continue;
      report.AddInput(
          i, Diag::kRoleType, "`%{}` is {}, `@{}` saves it as {}", graph.name(input.value),
          PrintType(module, graph, graph.type(input.value), graph[input.value].placement),
          source.name(), PrintType(module, source, source.type(value), source[value].placement));
    }
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const Output& output = graph.outputs()[i];
      if (output.role != OutputRole::kSaved || output.label.empty()) continue;
      size_t label = labels.Intern(output.label).index();
      if (label == saved.size()) {
        saved.push_back({g, i});
      } else {
        report.AddOutput(i, Diag::kDuplicateRole, "`saved \"{}\"` is already an output of `@{}`",
                         output.label, module.graphs[saved[label].graph].name());
      }
    }
  }
}

}  // namespace heddle
