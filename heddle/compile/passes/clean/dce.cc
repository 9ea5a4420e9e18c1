// dce: removes nodes that no output needs.
//
//   %a = aten.neg(%x)
//   %b = aten.exp(%x)        becomes      %b = aten.exp(%x)
//   -> (%b)
//
// One backward walk over the nodes. Random ops stay, because removing one would change the numbers
// that the next one draws. Unknown ops stay, because they may have any effect. Sends stay, because
// another graph receives what they send.
#include "heddle/compile/manager/pass.h"
#include "heddle/core/analysis/launch.h"

namespace heddle::compile {
namespace {

Result<Changed> DeadCode(Graph& graph, PassContext& context) {
  Table<ValueId, bool> needed(graph.value_count());
  for (const Output& output : graph.outputs()) needed[output.value] = true;
  Rewriter rewriter(graph);
  for (size_t i = graph.node_count(); i-- > 0;) {
    NodeId id(i);
    Effect effect = graph.op(id).effect();
    bool alive = effect == Effect::kRandom || effect == Effect::kOpaque || Sends(graph, id);
    for (ValueId result : graph.results(id)) alive |= needed[result];
    if (!alive) {
      rewriter.Erase(id);
      context.Count("removed");
      continue;
    }
    for (ValueId operand : graph.operands(id)) {
      if (operand) needed[operand] = true;
    }
  }
  return rewriter.Commit();
}

constexpr std::string_view kDceStats[] = {"removed"};

}  // namespace

HEDDLE_DEFINE_PASS(dce){
    .name = "dce",
    .summary = "Removes nodes that no output needs",
    .run = Run<DeadCode>,
    .stats = kDceStats,
};

}  // namespace heddle::compile
