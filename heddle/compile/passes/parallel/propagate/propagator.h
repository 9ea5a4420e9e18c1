// The walk of the pass propagate over one graph: assigns a placement to every value, and inserts
// the redistributions that the plan fixes.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/parallel/propagate/module_boundaries.h"
#include "heddle/compile/passes/parallel/propagate/pinned_nodes.h"
#include "heddle/compile/passes/parallel/propagate/plan_inputs.h"
#include "heddle/compile/passes/parallel/redistribute/redistributor.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/compile/shard/node_facts.h"
#include "heddle/compile/shard/scope_facts.h"

namespace heddle::compile {

class Propagator {
 public:
  Propagator(Module& module, Graph& graph, const Plan& plan, ModuleBoundaries boundaries,
             PassContext& context)
      : graph_(graph),
        mesh_(module.mesh),
        plan_(plan),
        boundaries_(std::move(boundaries)),
        scopes_(graph),
        context_(context),
        facts_(graph, module.mesh),
        rewriter_(graph),
        inserter_(graph, rewriter_) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

  // Splits nodes as in `chosen`. Returns the nodes for which that differs from propagate's own
  // decisions.
  Result<std::vector<NodeId>> Compare(const std::vector<const OpSplit*>& chosen);

 private:
  using ParamPlan = PlacedInputs::ParamPlan;

  Status Walk();

  PlacementId At(ValueId v) const { return placement_[v.index()]; }
  bool IsBackward(ValueId v) const;

  Status Visit(NodeId node);

  Result<const NodePlacing*> PlaceFreely(NodeId node);

  Status Finish(NodeId node, const std::vector<Placement>& results);

  NodeFacts::Operand OperandOf(ValueId v) const;
  // The first reader of a constant determines its split.
  void Settle(ValueId v, const Placement& placement);

  void SetPlacement(ValueId v, const Placement& placement);
  void SetPlacement(ValueId v, PlacementId id);

  // Whether the node is a narrowing cast of a parameter, which stays in the parameter's storage
  // placement so that fewer bytes are gathered.
  bool KeepsStorage(NodeId node);

  // The value as a node reads it: after leaving and entering modules, in the narrow or wide type.
  Result<ValueId> Arrive(ValueId v, NodeId node);

  // Sets the final placements of gradients as goals of the elementwise ops that compute them.
  void SetGoals();
  PlacementId GoalOf(NodeId node) const;

  // --- Pinned nodes (propagate_pinned.cc)

  // Redistributes operands immediately, because insert-redistributions might choose another way to
  // the same results.
  Status PlaceAs(NodeId node, const OpSplit& split, uint32_t line);

  bool CanBeSplit(NodeId node, const OpSplit& split);
  bool SameOperands(NodeId node, const NodePlacing& placing, const OpSplit& split) const;

  // Whether propagate would split the node differently. A constant waits for its first reader.
  bool Deviates(NodeId node, const OpSplit& chosen);

  // Compares constants without readers, and those whose split did not change the graph.
  void CompareConstants();

  // --- Boundaries of modules

  Result<ValueId> Cross(ValueId v, NodeId node);

  // A gradient leaves a module where its input entered, and enters where its output left, with the
  // mirrored redistribution. Sums pending in forward are not pending in backward.
  ValueId CrossBack(ValueId v, NodeId node, size_t rank, const std::vector<uint32_t>& left,
                    const std::vector<uint32_t>& entered);

  Result<PlacementId> AtBoundary(ValueId v, const PlanModule& rule,
                                 const BoundaryPlacement& boundary);
  PlacementId Summed(PlacementId id);

  // --- Context parallelism (propagate_context.cc)

  // The module statement that splits the positions of an attention node, or null.
  const PlanModule* ContextOf(NodeId node) const;
  bool IsBackward(NodeId attention) const;

  // Gathers keys and values, or moves all operands from positions to heads. Returns the placements
  // that all operands had before.
  Status CheckRing(NodeId node, const PlanModule& rule) const;
  Result<std::vector<PlacementId>> EnterAttention(NodeId node, const PlanModule& rule);
  // Moves the results back.
  void LeaveAttention(NodeId node, const std::vector<PlacementId>& before, const PlanModule& rule);

  void GatherPositions(NodeId node, size_t operand, const PlanModule& rule);
  ValueId SumLatents(ValueId grad, PlacementId latents, NodeId node);
  void RecomputeFromLatents();
  Result<ValueId> RepeatHeads(ValueId stored, const Axes& over, NodeId node,
                              const PlanModule& rule);
  void RepeatResult(ValueId grad, ValueId stored);
  ValueId SumHeads(ValueId stored, Dim heads);
  PlacementId Transposed(PlacementId id);
  ValueId AddTransposed(Inserter::Place place, ValueId v);
  ValueId AddCast(ValueId v, DType dtype);

  // --- Gradients and other outputs (propagate_outputs.cc)

  const ParamPlan* GradParam(ValueId v) const;

  // Whether the node is a cast to a wider type that leads to a gradient.
  bool IsGradCast(NodeId node) const;

  PlacementId WithoutTensorPartials(ValueId v, const ParamPlan& param);

  // Redistributes a gradient from backward's placement to the parameter's storage.
  Result<ValueId> FinishGradient(ValueId v, const ParamPlan& param);

  ValueId DivideBehind(ValueId v, double divisor);

  // Redistributes an output of the graph right after the node that produces it.
  Status FinishOutputs(ValueId v, NodeId node);

  // Moves an output of the graph out of the modules that contain its producer.
  Result<ValueId> LeaveLayers(ValueId v, NodeId node);

  // --- Redistributions

  using Purpose = Redistributor::Purpose;

  ValueId Redistribute(ValueId v, PlacementId target, const Purpose& purpose, NodeId before);
  ValueId RedistributeBehind(ValueId v, PlacementId target, const Purpose& purpose);
  ValueId Noted(ValueId result, PlacementId placement);

  // Gradients of a whole graph are sums over its whole batch, so a plan that divides them differs
  // from the graph.
  void RemarkDivided();

  void RemarkDropped(NodeId node, const Axes& dropped);

  Graph& graph_;
  const Mesh& mesh_;
  const Plan& plan_;
  std::map<NodeId, PinnedNode> pinned_;
  // For Compare.
  const std::vector<const OpSplit*>* chosen_ = nullptr;
  std::vector<NodeId> deviations_;
  ModuleBoundaries boundaries_;
  ScopeFacts scopes_;
  PassContext& context_;
  NodeFacts facts_;
  Rewriter rewriter_;
  Redistributor inserter_;
  PlacedInputs inputs_;
  // Indexed by value: its placement, and the parameter whose storage it still is.
  std::vector<PlacementId> placement_;
  std::vector<const ParamPlan*> param_;
  std::vector<PlacementId> goal_;
  std::map<std::pair<const ParamPlan*, TypeId>, ValueId> casts_;
  std::map<ValueId, ValueId> same_cast_;
  std::set<ValueId> settled_;
  std::multimap<ValueId, size_t> outputs_of_;
  // Indexed by value of the original graph: whether it is an output.
  std::vector<bool> leaves_;
  // Reduced gradients, keyed by the value before the reduction.
  std::map<ValueId, ValueId> finished_;
  // Results of attention in the placements of its operands, keyed by the results as computed.
  std::map<ValueId, ValueId> returned_;
  // Gradients of repeated heads, and the number of heads that were repeated.
  std::map<ValueId, Dim> repeated_;
  // Values that moved from positions to heads. `repeated`: the value with repeated heads; invalid
  // if they are not.
  struct Exchanged {
    ValueId heads;
    ValueId repeated;
  };
  std::map<std::pair<ValueId, const PlanModule*>, Exchanged> exchanged_;
  // Latents that were gathered over positions.
  std::set<ValueId> latents_;
  // Gradients that were reduced before they were widened.
  std::set<ValueId> reduced_;
};

}  // namespace heddle::compile
