// partition: splits a joint graph into @fwd, @bwd and, if there is an optimizer, @opt.
//
//  graph @step(%x batch) -> (loss %l, metric %d) {
//    fwd: %a = ..., %l = ...
//    bwd: %d = aten.neg(%a)
//   }
//
// becomes
//
//   graph @fwd(%x batch) -> (loss %l, saved "a" %a) { %a = ..., %l = ... }
//   graph @bwd(%a saved "a") -> (metric %d) { %d = aten.neg(%a) }
//
// A value that one graph computes and a later one reads becomes an output and an input of role
// `saved`, paired by its name in the joint graph. For a node with several results, only the results
// that are read are saved. Each graph that reads an input gets it. Inputs and outputs are ordered
// by their first reader's graph, then as in the joint graph. `join` is the inverse; a second
// partition of its result gives the same text. The pass decides nothing: `rematerialize` has
// already applied the marks that decide which values cross.
#include <algorithm>
#include <array>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/ir/edit/graph_copier.h"

namespace heddle::compile {
namespace {

constexpr size_t kPhases = 3;
constexpr std::array<std::string_view, kPhases> kPhaseNames = {"fwd", "bwd", "opt"};

class Partitioner {
 public:
  Partitioner(const Mesh& mesh, const Graph& joint)
      : mesh_(mesh), joint_(joint), uses_(joint.value_count()), saved_(joint.value_count()) {}

  Result<std::vector<Graph>> Run(PassContext& context) {
    HEDDLE_RETURN_IF_ERROR(Check());
    HEDDLE_RETURN_IF_ERROR(FindUses());
    std::vector<Graph> parts;
    for (size_t phase = 0; phase < kPhases; ++phase) {
      bool any =
          std::ranges::any_of(joint_.nodes(), [&](NodeId id) { return PhaseOf(id) == phase; });
      // An input that no graph reads may still be an output.
      if (!any && phase > 0) continue;
      Graph& part = parts.emplace_back(std::string(kPhaseNames[phase]), joint_.ops());
      HEDDLE_RETURN_IF_ERROR(Fill(phase, part));
    }
    for (ValueId v : joint_.values()) {
      if (!saved_[v.index()]) continue;
      context.Count("saved");
      context.Count("saved_bytes", joint_.types().bytes(joint_.type(v)).value);
    }
    return parts;
  }

 private:
  // Per phase, whether a node or an output of that phase needs the value.
  using Phases = std::array<bool, kPhases>;

  Status Check() const {
    auto refuse = [](std::string_view what, std::string_view name) {
      return Error(Diag::kLostRole,
                   "{} `%{}` has no role; partition needs a role for every input and output", what,
                   name);
    };
    auto refuse_part = [](std::string_view what, std::string_view name) {
      return Error(Diag::kDuplicateRole,
                   "{} `%{}` has role saved; the graph is already a part of a partitioned one",
                   what, name);
    };
    for (const Input& input : joint_.inputs()) {
      std::string_view name = joint_.name(input.value);
      if (input.role == InputRole::kPlain) return refuse("input", name);
      if (input.role == InputRole::kSaved) return refuse_part("input", name);
    }
    for (const Output& output : joint_.outputs()) {
      std::string_view name = joint_.name(output.value);
      if (output.role == OutputRole::kPlain) return refuse("output", name);
      if (output.role == OutputRole::kSaved) return refuse_part("output", name);
    }
    NodeId last;
    for (NodeId id : joint_.nodes()) {
      if (last && joint_[id].phase < joint_[last].phase)
        return Error(
            Diag::kUseBeforeDefinition,
            "`%{}` of phase {} comes after `%{}` of phase {}; partition needs the phases in order",
            joint_.name(joint_[id].first_result), Name(joint_[id].phase),
            joint_.name(joint_[last].first_result), Name(joint_[last].phase));
      last = id;
    }
    return Done{};
  }

  size_t PhaseOf(NodeId node) const { return static_cast<size_t>(joint_[node].phase); }
  // The phase of an output is that of its producer. An input belongs to forward.
  size_t PhaseOf(const Output& output) const {
    NodeId producer = joint_[output.value].producer;
    return producer ? PhaseOf(producer) : 0;
  }

  Status FindUses() {
    for (NodeId id : joint_.nodes()) {
      for (ValueId v : joint_.operands(id)) {
        if (!v) continue;
        uses_[v.index()][PhaseOf(id)] = true;
        NodeId producer = joint_[v].producer;
        if (!producer || joint_[producer].phase == joint_[id].phase) continue;
        if (joint_.types().is_async(joint_.type(v)))
          return Error(Diag::kAsyncUse,
                       "`%{}` is launched in {} and awaited in {}; no operation may be in flight "
                       "between phases",
                       joint_.name(v), Name(joint_[producer].phase), Name(joint_[id].phase));
        saved_[v.index()] = true;
      }
    }
    auto use_param = [&](int64_t index, size_t phase) {
      if (const Input* param = joint_.FindParam(index)) uses_[param->value.index()][phase] = true;
    };
    for (const Output& output : joint_.outputs()) {
      size_t phase = PhaseOf(output);
      if (!joint_[output.value].producer) uses_[output.value.index()][phase] = true;
      if (output.target) uses_[output.target.index()][phase] = true;
      if (output.role == OutputRole::kGrad) use_param(output.index, phase);
    }
    // A parameter's state is next to the parameter. Unused inputs belong to forward.
    for (const Input& input : joint_.inputs()) {
      Phases& phases = uses_[input.value.index()];
      if (std::ranges::none_of(phases, std::identity())) phases[0] = true;
    }
    for (const Input& input : joint_.inputs()) {
      if (input.role != InputRole::kOpt) continue;
      for (size_t phase = 0; phase < kPhases; ++phase) {
        if (uses_[input.value.index()][phase]) use_param(input.index, phase);
      }
    }
    return Done{};
  }

  Status Fill(size_t phase, Graph& part) const {
    GraphCopier copier(mesh_, joint_, part);
    for (size_t first = 0; first <= phase; ++first) {
      for (const Input& input : joint_.inputs()) {
        const Phases& phases = uses_[input.value.index()];
        size_t first_use = std::ranges::find(phases, true) - phases.begin();
        if (first_use == first && phases[phase]) copier.CopyInput(input);
      }
    }
    for (ValueId v : joint_.values()) {
      if (!saved_[v.index()] || !uses_[v.index()][phase] || MadeIn(v) == phase) continue;
      copier.AddInput(v, {.role = InputRole::kSaved, .label = std::string(joint_.name(v))});
    }
    for (NodeId id : joint_.nodes()) {
      if (PhaseOf(id) == phase) copier.CopyNode(id);
    }
    for (const Output& output : joint_.outputs()) {
      if (PhaseOf(output) == phase) copier.CopyOutput(output);
    }
    for (ValueId v : joint_.values()) {
      if (saved_[v.index()] && MadeIn(v) == phase)
        copier.CopyOutput(
            {.value = v, .role = OutputRole::kSaved, .label = std::string(joint_.name(v))});
    }
    return copier.CopyRegions();
  }

  size_t MadeIn(ValueId v) const { return PhaseOf(joint_[v].producer); }

  const Mesh& mesh_;
  const Graph& joint_;
  std::vector<Phases> uses_;
  std::vector<bool> saved_;
};

Result<Changed> Partition(Module& module, PassContext& context) {
  if (module.graphs.size() != 1)
    return Error(Diag::kUsage, "the module has {} graphs; partition needs one joint graph",
                 module.graphs.size());
  HEDDLE_TRY(std::vector<Graph> parts, Partitioner(module.mesh, module.graphs[0]).Run(context));
  if (parts.size() == 1) {
    context.AddRemark(module.graphs[0], ValueId(), RemarkKind::kNoEffect,
                      "the graph has only forward nodes");
    return Changed::kNo;
  }
  module.graphs = std::move(parts);
  return Changed::kYes;
}

constexpr std::string_view kPartitionStats[] = {"saved", "saved_bytes"};

}  // namespace

HEDDLE_DEFINE_PASS(partition){
    .name = "partition",
    .summary = "Splits a joint graph into @fwd, @bwd and @opt, which pass saved values by name",
    .run = Run<Partition>,
    .changes_signature = true,
    .stats = kPartitionStats,
};

}  // namespace heddle::compile
