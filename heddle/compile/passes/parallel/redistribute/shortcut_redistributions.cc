// shortcut-redistributions: avoids redistributions that lead back to an earlier placement, or pass
// through an unused one.
//
//   %a = shard.redistribute(%x) : f32[8,4]             with %x: f32[8{dp},4]
//   %c = aten.alias(%a)         : f32[8,4]
//   %b = shard.redistribute(%c) : f32[8{dp},4]         every use of %b becomes a use of %x
//
// Going back from a redistribution, through copies and other redistributions, all values hold the
// same numbers. The redistribution starts at the value from which its target needs the fewest
// collectives, then the fewest moved elements. Pending sums are excluded, because reducing them
// elsewhere would round differently.
#include <optional>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class Shortcuts {
 public:
  Shortcuts(Graph& graph, const Mesh& mesh)
      : graph_(graph), mesh_(mesh), donations_(graph), rewriter_(graph) {}

  Result<Changed> Run(PassContext& context) {
    for (NodeId node : graph_.nodes()) {
      if (graph_[node].op != op::shard_redistribute) continue;
      ValueId end = graph_[node].first_result;
      ValueId start = BestStart(node);
      if (start == rewriter_.Resolve(graph_.operands(node)[0])) continue;
      bool round_trip = graph_[start].placement == graph_[end].placement;
      context.Count(round_trip ? "round_trips" : "detours");
      if (!round_trip) {
        rewriter_.SetOperand(node, 0, start);
        continue;
      }
      rewriter_.ReplaceValue(end, start);
      rewriter_.Erase(node);
    }
    return rewriter_.Commit();
  }

 private:
  // The previous value with the same numbers, or none.
  ValueId Before(ValueId v) const {
    NodeId node = graph_[v].producer;
    if (!node) return ValueId();
    OpId op = graph_[node].op;
    if (op != op::shard_redistribute && op != op::alias) return ValueId();
    return rewriter_.Resolve(graph_.operands(node)[0]);
  }

  // Nullopt if no steps lead there, or if a sum is pending.
  std::optional<RedistributionPrice> Price(ValueId from, ValueId to) const {
    const Placement& a = graph_.placements()[graph_[from].placement];
    const Placement& b = graph_.placements()[graph_[to].placement];
    if (!a.partials.empty() || !b.partials.empty() || graph_.type(from) != graph_.type(to))
      return std::nullopt;
    std::span<const Dim> list = graph_.types().dims(graph_.type(to));
    Dims dims(list.begin(), list.end());
    Result<std::vector<RedistributionStep>> steps = PlanRedistribution(a, b, dims, mesh_);
    if (!steps.ok()) return std::nullopt;
    return PriceOf(a, *steps, dims, mesh_);
  }

  // The operand, or an earlier value from which the target is cheaper.
  ValueId BestStart(NodeId node) const {
    ValueId end = graph_[node].first_result;
    ValueId best = rewriter_.Resolve(graph_.operands(node)[0]);
    std::optional<RedistributionPrice> price = Price(best, end);
    if (!price) return best;
    for (ValueId v = Before(best); v; v = Before(v)) {
      std::optional<RedistributionPrice> other = Price(v, end);
      // An update may take over its storage before the redistribution runs.
      if (!other || *other >= *price || donations_.taker(v)) continue;
      best = v;
      price = other;
    }
    return best;
  }

  Graph& graph_;
  const Mesh& mesh_;
  BufferDonations donations_;
  Rewriter rewriter_;
};

Result<Changed> ShortcutRedistributions(Module& module, PassContext& context) {
  Changed changed = Changed::kNo;
  for (Graph& graph : module.graphs) {
    HEDDLE_TRY(Changed one, Shortcuts(graph, module.mesh).Run(context));
    changed = changed | one;
  }
  return changed;
}

constexpr std::string_view kShortcutRedistributionsStats[] = {"round_trips", "detours"};

}  // namespace

HEDDLE_DEFINE_PASS(shortcut_redistributions){
    .name = "shortcut-redistributions",
    .summary = "Avoids redistributions to another placement and back",
    .run = Run<ShortcutRedistributions>,
    .any_view = false,
    .needs = View::kGlobal,
    .stats = kShortcutRedistributionsStats,
};

}  // namespace heddle::compile
