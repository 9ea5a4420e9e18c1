// separate-communicators: gives gathers of weights, reduce-scatters of gradients and their
// all-reduces a communicator each.
//
//   %u! = comm.all_gather(%h, over=[dp], why=unshard)          becomes       ... stream=1
//   %g! = comm.reduce_scatter(%d, over=[dp], why=grad)                       ... stream=2
//   %s! = comm.all_reduce(%g, over=[rep], why=grad)                          ... stream=3
//
// Operations on one communicator run in sequence, so a gather for the next unit would wait for the
// previous reduction. The numbers are the same in every graph, so that ranks can create
// communicators up front. A number that other collectives use over the same axes is skipped.
#include <cstdint>
#include <map>
#include <set>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/weights.h"

namespace heddle::compile {
namespace {

enum class Class : uint8_t { kGather, kReduceScatter, kAllReduce, kOther };

Class ClassOf(const Graph& graph, NodeId launch) {
  if (IsUnshard(graph, launch)) return Class::kGather;
  if (!IsGradReduction(graph, launch)) return Class::kOther;
  return graph[launch].op == op::comm_reduce_scatter ? Class::kReduceScatter : Class::kAllReduce;
}

uint64_t OverOf(const Graph& graph, NodeId launch) {
  const AttrValue* over = graph.attrs(launch).Find("over");
  return over != nullptr ? std::get<Axes>(*over).bits() : 0;
}

Result<Changed> SeparateCommunicators(Graph& graph, PassContext& context) {
  // Keyed by axes: the streams that other collectives use.
  std::map<uint64_t, std::set<uint8_t>> taken;
  for (NodeId id : graph.nodes()) {
    if (IsLaunch(graph, id) && ClassOf(graph, id) == Class::kOther)
      taken[OverOf(graph, id)].insert(graph[id].stream);
  }
  Rewriter rewriter(graph);
  std::map<std::pair<uint64_t, Class>, uint8_t> streams;
  bool any = false;
  for (Class wanted : {Class::kGather, Class::kReduceScatter, Class::kAllReduce}) {
    for (NodeId id : graph.nodes()) {
      if (!IsLaunch(graph, id) || ClassOf(graph, id) != wanted) continue;
      any = true;
      auto [at, added] = streams.try_emplace({OverOf(graph, id), wanted});
      if (added) {
        std::set<uint8_t>& used = taken[OverOf(graph, id)];
        int stream = static_cast<int>(wanted) + 1;
        while (stream <= UINT8_MAX && used.contains(static_cast<uint8_t>(stream))) ++stream;
        if (stream > UINT8_MAX)
          return rewriter.Finish(
              Error(Diag::kStream, "all streams over [{}] are in use",
                    Format(context.mesh(), std::get<Axes>(*graph.attrs(id).Find("over")))));
        used.insert(at->second = static_cast<uint8_t>(stream));
        context.Count("communicators");
      }
      if (graph[id].stream == at->second) continue;
      rewriter.SetStream(id, at->second);
      context.Count("launches");
    }
  }
  if (!any)
    context.AddRemark(graph, ValueId(), RemarkKind::kNoEffect,
                      "no collective gathers weights or reduces gradients");
  return rewriter.Commit();
}

constexpr std::string_view kSeparateCommunicatorsStats[] = {"launches", "communicators"};

}  // namespace

HEDDLE_DEFINE_PASS(separate_communicators){
    .name = "separate-communicators",
    .summary = "Gives gathers of weights and reductions of gradients separate communicators",
    .run = Run<SeparateCommunicators>,
    .any_view = false,
    .needs = View::kLocal,
    .stats = kSeparateCommunicatorsStats,
};

}  // namespace heddle::compile
