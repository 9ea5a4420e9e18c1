// insert-redistributions: moves operands to the placements that their ops need, given the
// placements of all values.
//
//   %y = aten.mm(%x, %w) : bf16[32{dp},64]      with %w: bf16[128,64{dp}] becomes
//
//   %r = shard.redistribute(%w, why=tensor)     : bf16[128,64]
//   %y = aten.mm(%x, %r)                        : bf16[32{dp},64]
//
// An operand that several nodes need in one placement is moved once, and not at all if an equal
// redistribution exists. Constants are created where they are needed. The pass works on any global
// graph with placements: from propagate, from a solver, or written by hand.
#include <algorithm>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/parallel/redistribute/redistributor.h"
#include "heddle/compile/shard/node_facts.h"
#include "heddle/compile/shard/scope_facts.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class OperandMover {
 public:
  OperandMover(Graph& graph, const Mesh& mesh, PassContext& context)
      : graph_(graph),
        scopes_(graph),
        context_(context),
        facts_(graph, mesh),
        rewriter_(graph),
        inserter_(graph, rewriter_) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

 private:
  Status Walk() {
    size_t count = graph_.node_count();
    for (uint32_t n = 0; n < count; ++n) {
      NodeId node{n};
      if (graph_[node].op == op::shard_redistribute) inserter_.Learn(node);
      if (graph_[node].op == op::shard_redistribute || IsConstant(graph_, node)) continue;
      if (Indifferent(node)) continue;
      HEDDLE_TRY(const NodePlacing* placing, Place(node));
      for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
        ValueId v = graph_.operands(node)[i];
        if (!v) continue;
        v = rewriter_.Resolve(v);
        if (placing->operands[i] == graph_.placements()[graph_[v].placement]) continue;
        PlacementId wanted = graph_.placements().Intern(placing->operands[i]);
        if (wanted != graph_[v].placement)
          rewriter_.SetOperand(node, i,
                               inserter_.Redistribute(Inserter::Before(node), v, wanted,
                                                      {.why = scopes_.why(graph_[node])}));
      }
    }
    context_.Count("redistributions", inserter_.redistributions());
    return Done{};
  }

  // Whether no operand or result is split or pending.
  bool Indifferent(NodeId node) const {
    auto plain = [&](ValueId v) {
      return !v || graph_[v].placement == PlacementTable::kReplicated;
    };
    return std::ranges::all_of(graph_.operands(node), plain) &&
           std::ranges::all_of(graph_.results(node), plain);
  }

  Result<const NodePlacing*> Place(NodeId node) {
    std::vector<NodeFacts::Operand> operands;
    for (ValueId v : graph_.operands(node))
      operands.push_back({v, v ? graph_[v].placement : PlacementTable::kReplicated});
    std::vector<PlacementId> wanted;
    for (ValueId v : graph_.results(node)) wanted.push_back(graph_[v].placement);
    return facts_.Place(node, operands, scopes_.local(graph_[node]), &wanted);
  }

  Graph& graph_;
  ScopeFacts scopes_;
  PassContext& context_;
  NodeFacts facts_;
  Rewriter rewriter_;
  Redistributor inserter_;
};

Result<Changed> InsertRedistributions(Module& module, PassContext& context) {
  Changed changed = Changed::kNo;
  for (Graph& graph : module.graphs) {
    HEDDLE_TRY(Changed one, OperandMover(graph, module.mesh, context).Run());
    changed = changed | one;
  }
  return changed;
}

constexpr std::string_view kInsertRedistributionsStats[] = {"redistributions"};

}  // namespace

HEDDLE_DEFINE_PASS(insert_redistributions){
    .name = "insert-redistributions",
    .summary = "Moves operands to the placements that their ops need",
    .run = Run<InsertRedistributions>,
    .any_view = false,
    .needs = View::kGlobal,
    .stats = kInsertRedistributionsStats,
};

}  // namespace heddle::compile
