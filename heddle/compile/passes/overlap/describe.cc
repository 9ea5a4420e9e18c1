#include "heddle/compile/passes/overlap/describe.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "heddle/core/base/text.h"
#include "heddle/price/cost/kernel_time.h"
#include "heddle/price/sim/explain/movable.h"
#include "heddle/price/sim/explain/reasons.h"

namespace heddle::compile {
namespace {

// The number of matrix products and attentions before each light node, keyed by the name of its
// first result.
std::unordered_map<std::string_view, int64_t> PlacesOfLight(const Graph& graph) {
  std::unordered_map<std::string_view, int64_t> places;
  int64_t before = 0;
  for (NodeId id : graph.nodes()) {
    if (IsMatrixWork(graph.op(id))) {
      ++before;
    } else if (graph.op(id).effect() == Effect::kPure && graph[id].result_count > 0) {
      places.emplace(graph.name(graph[id].first_result), before);
    }
  }
  return places;
}

// Nodes that moved in one direction.
struct Moved {
  ValueId first;
  int64_t count = 0;
  // The largest number of matrix products and attentions that one of them passed.
  int64_t farthest = 0;
};

}  // namespace

int64_t ExplainMoved(const Graph& before, const std::vector<LayerRun>& runs, const Graph& after,
                     PassContext& context) {
  const std::unordered_map<std::string_view, int64_t> was = PlacesOfLight(before);
  const std::unordered_map<std::string_view, int64_t> is = PlacesOfLight(after);
  // Nodes that depend only on parameters have no position of their own.
  const std::vector<bool> movable = price::FindMovable(before);
  const std::vector<LayerPlace> places = PlacesIn(runs, before.node_count());
  std::map<std::pair<uint32_t, bool>, Moved> groups;
  int64_t moved = 0;
  for (NodeId id : before.nodes()) {
    if (movable[id.index()] || before[id].result_count == 0) continue;
    auto from = was.find(before.name(before[id].first_result));
    if (from == was.end()) continue;
    auto to = is.find(from->first);
    if (to == is.end() || to->second == from->second) continue;
    ++moved;
    const int64_t passed = to->second - from->second;
    Moved& group = groups[{places[id.index()].run, passed > 0}];
    if (group.count++ == 0) group.first = before[id].first_result;
    group.farthest = std::max(group.farthest, std::abs(passed));
  }
  for (const auto& [key, group] : groups) {
    const auto& [run, later] = key;
    const std::string where = run == LayerPlace::kNone
                                  ? "outside equal layers"
                                  : fmt::format("of {} equal layers", runs[run].count);
    context.AddRemark(before, group.first, RemarkKind::kComputeMoved,
                      "{} {} moved {}, past up to {}, to cover or feed a collective",
                      Counted(group.count, "node"), where, later ? "later" : "earlier",
                      Counted(group.farthest, "matrix product"));
  }
  return moved;
}

Status ExplainExposed(const Module& module, const Graph& graph, const price::CostModel& model,
                      const price::SimulateOptions& options, Bytes cap, PassContext& context) {
  HEDDLE_TRY(price::GraphCosts costs, model.Price(module, graph));
  price::SimGraph sim(graph, costs, options.memory);
  price::Timeline timeline = price::MakeTimeline(sim, price::TimelineOptions(model, options));
  std::vector<price::Exposure> why = price::ExplainExposure(graph, sim, timeline, cap);
  for (size_t i = 0; i < why.size(); ++i) {
    const price::CollectiveTimes& times = timeline.collectives[i];
    if (times.exposed.value == 0) continue;
    context.AddRemark(graph, graph[times.start].first_result, RemarkKind::kExposed,
                      "compute waits for {} of {}: {}", Format(times.exposed),
                      Format(sim[times.start].alone()), Name(why[i].main()));
  }
  return Done{};
}

}  // namespace heddle::compile
