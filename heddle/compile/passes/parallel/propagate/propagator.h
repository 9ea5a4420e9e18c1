// The walk of the pass propagate over one graph: a placement for every value, and the redistributions that the plan fixes.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/parallel/propagate/plan_inputs.h"
#include "heddle/compile/passes/parallel/propagate/region.h"
#include "heddle/compile/passes/parallel/propagate/said_nodes.h"
#include "heddle/compile/passes/parallel/redistribute/redistributor.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/compile/shard/node_facts.h"
#include "heddle/compile/shard/scope_facts.h"

namespace heddle::compile {

class Propagator {
 public:
  Propagator(Module& module, Graph& graph, const Plan& plan, Regions regions, PassContext& context)
      : graph_(graph),
        mesh_(module.mesh),
        plan_(plan),
        regions_(std::move(regions)),
        scopes_(graph),
        context_(context),
        facts_(graph, module.mesh),
        rewriter_(graph),
        inserter_(graph, rewriter_) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

  // Decides as `chosen` says, and answers with the nodes where that differs from what it would do.
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
  // The first reader of a constant decides how it is made.
  void Settle(ValueId v, const Placement& placement);

  void SetPlacement(ValueId v, const Placement& placement);
  void SetPlacement(ValueId v, PlacementId id);

  // A cast of a parameter that narrows it happens in its storage, so that fewer bytes are gathered.
  bool KeepsStorage(NodeId node);

  // The value as it arrives at a node: out of one layer, into another, in the wide or the narrow type.
  Result<ValueId> Arrive(ValueId v, NodeId node);

  // Where gradients will end, for what they are made of element by element.
  void SetGoals();
  PlacementId GoalOf(NodeId node) const;

  // --- Nodes that somebody has decided (propagate_said.cc)

  // Operands move here and now: insert-redistributions would look for another way to the same results.
  Status PlaceAs(NodeId node, const OpSplit& split, uint32_t line);

  bool CanBeSplit(NodeId node, const OpSplit& split);
  bool SameOperands(NodeId node, const NodePlacing& placing, const OpSplit& split) const;

  // Whether the node would be split otherwise. A constant is split as its first reader wants it, so it waits for that.
  bool Deviates(NodeId node, const OpSplit& chosen);

  // Those that nobody has read, or that left the graph as they were.
  void CompareConstants();

  // --- Boundaries of layers

  Result<ValueId> Cross(ValueId v, NodeId node);

  // A gradient leaves a layer where its input came in, and enters one where its output went out: the mirrored
  // redistribution. What was pending in forward is whole in backward.
  ValueId CrossBack(ValueId v, NodeId node, size_t rank, const std::vector<uint32_t>& left,
                    const std::vector<uint32_t>& entered);

  Result<PlacementId> AtBoundary(ValueId v, const PlanLayer& rule,
                                 const BoundaryPlacement& boundary);
  PlacementId Summed(PlacementId id);

  // --- Gradients and other outputs (propagate_outputs.cc)

  const ParamPlan* GradParam(ValueId v) const;

  // A cast to a wider type that ends in a gradient.
  bool IsGradCast(NodeId node) const;

  PlacementId WithoutTensorPartials(ValueId v, const ParamPlan& param);

  // From where backward leaves it to where the parameter is stored.
  Result<ValueId> FinishGradient(ValueId v, const ParamPlan& param);

  ValueId DivideBehind(ValueId v, double divisor);

  // Redistributes what leaves the graph, right behind the node that makes it.
  Status FinishOutputs(ValueId v, NodeId node);

  // What leaves the graph leaves the layers that it comes from.
  Result<ValueId> LeaveLayers(ValueId v, NodeId node);

  // --- Redistributions

  using Purpose = Redistributor::Purpose;

  ValueId Redistribute(ValueId v, PlacementId target, const Purpose& purpose, NodeId before);
  ValueId RedistributeBehind(ValueId v, PlacementId target, const Purpose& purpose);
  ValueId Noted(ValueId result, PlacementId placement);

  // The gradients of a whole graph are sums over its whole batch. A plan that divides them departs from the graph.
  void RemarkDivided();

  void RemarkDropped(NodeId node, const Axes& dropped);

  Graph& graph_;
  const Mesh& mesh_;
  const Plan& plan_;
  std::map<NodeId, SaidNode> said_;
  // For Compare.
  const std::vector<const OpSplit*>* chosen_ = nullptr;
  std::vector<NodeId> deviations_;
  Regions regions_;
  ScopeFacts scopes_;
  PassContext& context_;
  NodeFacts facts_;
  Rewriter rewriter_;
  Redistributor inserter_;
  PlacedInputs inputs_;
  // By value: its placement, and the parameter whose storage it still is.
  std::vector<PlacementId> placement_;
  std::vector<const ParamPlan*> param_;
  std::vector<PlacementId> goal_;
  std::map<std::pair<const ParamPlan*, TypeId>, ValueId> casts_;
  std::map<ValueId, ValueId> same_cast_;
  std::set<ValueId> settled_;
  std::multimap<ValueId, size_t> outputs_of_;
  // By value that was there before: whether it has any.
  std::vector<bool> leaves_;
  // Gradients by what they are before they are reduced.
  std::map<ValueId, ValueId> finished_;
  // Gradients that were reduced before they were widened.
  std::set<ValueId> reduced_;
};

}  // namespace heddle::compile
