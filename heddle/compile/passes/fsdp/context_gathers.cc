#include "heddle/compile/passes/fsdp/context_gathers.h"

#include <map>
#include <set>
#include <tuple>

#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// A gather of a value, or of a transposed value.
using ContextKey = std::tuple<AttrsId, ValueId, AttrsId>;

bool IsContextGather(const Graph& graph, NodeId id) {
  if (graph[id].op != op::comm_all_gather || graph.operands(id).size() != 1) return false;
  const AttrValue* why = graph.attrs(id).Find("why");
  return why != nullptr && std::get<Why>(*why) == Why::kContext;
}

ContextKey ContextKeyOf(const Graph& graph, NodeId gather) {
  ValueId v = graph.operands(gather)[0];
  NodeId producer = graph[v].producer;
  if (!producer || graph[producer].op != op::transpose_int) return {graph[gather].attrs, v, {}};
  return {graph[gather].attrs, graph.operands(producer)[0], graph[producer].attrs};
}

}  // namespace

int64_t ReuseContextGathers(const Graph& graph, const std::function<bool(std::string_view)>& keeps,
                            Rewriter& rewriter) {
  // The waits for earlier gathers.
  std::map<ContextKey, NodeId> earlier;
  std::set<ValueId> kept;
  for (NodeId wait : graph.nodes()) {
    if (graph[wait].op != op::comm_wait) continue;
    NodeId gather = graph[graph.operands(wait)[0]].producer;
    if (!gather || !IsContextGather(graph, gather)) continue;
    auto [at, added] = earlier.try_emplace(ContextKeyOf(graph, gather), wait);
    if (added) continue;
    ValueId reused = graph[at->second].first_result;
    if (graph[at->second].phase != graph[wait].phase) {
      if (!keeps(graph.scope(wait))) {
        at->second = wait;
        continue;
      }
      rewriter.SetKeep(reused, Keep::kMustSave);
      kept.insert(reused);
    }
    rewriter.ReplaceValue(graph[wait].first_result, reused);
    rewriter.Erase(wait);
    rewriter.Erase(gather);
  }
  return static_cast<int64_t>(kept.size());
}

}  // namespace heddle::compile
