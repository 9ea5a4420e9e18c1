// join: merges @fwd, @bwd and @opt into the joint graph @step.
//
// The inverse of `partition`. An input of role `saved` is replaced by the output with that role and
// label, and both are removed. Inputs of several graphs with the same name, type and role become
// one.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/ir/edit/graph_copier.h"
#include "heddle/core/ir/text/print.h"

namespace heddle::compile {
namespace {

class Joiner {
 public:
  Joiner(const Module& module, Graph& joint) : module_(module), joint_(joint) {
    copiers_.reserve(module.graphs.size());
    for (const Graph& part : module.graphs) copiers_.emplace_back(module.mesh, part, joint);
  }

  Status Run(PassContext& context) {
    FindSaved();
    for (size_t g = 0; g < copiers_.size(); ++g) HEDDLE_RETURN_IF_ERROR(AddInputs(g));
    for (size_t g = 0; g < copiers_.size(); ++g) {
      const Graph& part = module_.graphs[g];
      for (const Input& input : part.inputs()) {
        if (const Saved* from = SavedFor(g, input)) {
          copiers_[g].Bind(input.value, copiers_[from->graph].of(from->value));
          context.Count("joined");
        }
      }
      for (NodeId id : part.nodes()) copiers_[g].CopyNode(id);
    }
    for (size_t g = 0; g < copiers_.size(); ++g) {
      for (const Output& output : module_.graphs[g].outputs()) {
        if (output.role == OutputRole::kSaved && read_.contains(output.label)) continue;
        copiers_[g].CopyOutput(output);
      }
      HEDDLE_RETURN_IF_ERROR(copiers_[g].CopyRegions());
    }
    return CheckRoles();
  }

 private:
  struct Saved {
    size_t graph;
    ValueId value;
  };

  void FindSaved() {
    for (size_t g = 0; g < module_.graphs.size(); ++g) {
      for (const Input& input : module_.graphs[g].inputs()) {
        if (input.role == InputRole::kSaved) read_.emplace(input.label, g);
      }
      for (const Output& output : module_.graphs[g].outputs()) {
        if (output.role == OutputRole::kSaved) saved_.emplace(output.label, Saved{g, output.value});
      }
    }
  }

  // The output of an earlier graph that provides an input of graph `g`; or null.
  const Saved* SavedFor(size_t g, const Input& input) const {
    if (input.role != InputRole::kSaved) return nullptr;
    auto at = saved_.find(input.label);
    return at != saved_.end() && at->second.graph < g ? &at->second : nullptr;
  }

  std::string TypeText(const Graph& graph, ValueId v) const {
    return FormatType(graph.types()[graph.type(v)], module_.mesh, graph.types().symbols());
  }

  Status AddInputs(size_t g) {
    const Graph& part = module_.graphs[g];
    for (const Input& input : part.inputs()) {
      if (SavedFor(g, input) != nullptr) continue;
      auto [known, added] = inputs_.try_emplace(part.name(input.value), g);
      if (added) {
        copiers_[g].CopyInput(input);
        continue;
      }
      const Graph& other = module_.graphs[known->second];
      ValueId same = other.FindValue(part.name(input.value));
      const Input& first = *std::ranges::find(other.inputs(), same, &Input::value);
      bool equal = first.role == input.role && first.index == input.index &&
                   first.label == input.label && first.unit == input.unit &&
                   TypeText(other, same) == TypeText(part, input.value);
      if (!equal)
        return Error(Diag::kRoleType,
                     "input `%{}` of `@{}` has another type or role than in `@{}`; inputs that "
                     "graphs share must be equal",
                     part.name(input.value), part.name(), other.name());
      copiers_[g].Bind(input.value, copiers_[known->second].of(same));
    }
    return Done{};
  }

  // Either all inputs and outputs of a graph have roles, or none. The parts may have disagreed.
  Status CheckRoles() const {
    auto check = [&](std::string_view what, const auto& all, auto none) -> Status {
      auto plain = std::ranges::find(all, none, [](const auto& one) { return one.role; });
      bool mixed = std::ranges::any_of(all, [&](const auto& one) { return one.role != none; });
      if (plain == all.end() || !mixed) return Done{};
      return Error(
          Diag::kLostRole,
          "{} `%{}` has no role, but {}s of another graph have; give every input and output a role",
          what, joint_.name(plain->value), what);
    };
    HEDDLE_RETURN_IF_ERROR(check("input", joint_.inputs(), InputRole::kPlain));
    return check("output", joint_.outputs(), OutputRole::kPlain);
  }

  const Module& module_;
  const Graph& joint_;
  std::vector<GraphCopier> copiers_;
  // Keyed by label; by label; by name, the first graph that has the name.
  std::unordered_map<std::string_view, Saved> saved_;
  std::unordered_map<std::string_view, size_t> read_;
  std::unordered_map<std::string_view, size_t> inputs_;
};

Result<Changed> JoinGraphs(Module& module, PassContext& context) {
  Phase last = Phase::kForward;
  for (const Graph& part : module.graphs) {
    for (NodeId id : part.nodes()) {
      if (part[id].phase < last)
        return Error(Diag::kUseBeforeDefinition,
                     "`%{}` of phase {} is in `@{}`, after a graph of phase {}; graphs must be in "
                     "the order of their phases",
                     part.name(part[id].first_result), Name(part[id].phase), part.name(),
                     Name(last));
      last = part[id].phase;
    }
  }
  if (module.graphs.size() < 2) {
    if (!module.graphs.empty())
      context.AddRemark(module.graphs[0], ValueId(), RemarkKind::kNoEffect,
                        "the module has only one graph: nothing to join");
    return Changed::kNo;
  }
  Graph joint("step", module.graphs[0].ops());
  HEDDLE_RETURN_IF_ERROR(Joiner(module, joint).Run(context));
  module.graphs.clear();
  module.graphs.push_back(std::move(joint));
  return Changed::kYes;
}

constexpr std::string_view kJoinStats[] = {"joined"};

}  // namespace

HEDDLE_DEFINE_PASS(join){
    .name = "join",
    .summary = "Merges @fwd, @bwd and @opt into one joint graph",
    .run = Run<JoinGraphs>,
    .changes_signature = true,
    .stats = kJoinStats,
};

}  // namespace heddle::compile
