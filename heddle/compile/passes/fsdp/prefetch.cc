// prefetch: launches gathers of weights before the unit that needs them, and waits for gradient
// reductions later.
//
// The units of a phase form a sequence, ordered by where the phase first waits for or reads one of
// their weights. With depth k, a unit's gathers are launched before the phase needs the unit k
// positions earlier. Forward and backward have separate sequences. A unit whose weights are kept is
// part of backward's sequence, although backward gathers nothing for it: the next unit is launched
// before backward reads the kept weights, as in FSDP2.
//
// The wait for a reduction moves after later launches of the same communicator, so that the
// requested number is in flight. It stays before the first node of backward that uses the sum other
// than to pass it on.
//
// The inputs of a gather move with it. Launches of gathers keep their order. All moves are
// preferences of a Scheduler, so they break no dependence. The pass takes O(n log n) time.
#include <algorithm>
#include <map>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/fsdp/hoist.h"
#include "heddle/compile/passes/fsdp/scheduler.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct PrefetchOptions {
  int64_t forward = 1;
  int64_t backward = 1;
  int64_t reductions = 2;
  Bytes max_bytes;
};

// A unit in one phase.
struct Stop {
  std::string unit;
  // The first node that waits for a weight of the unit, or reads a kept one.
  NodeId needed;
  std::vector<NodeId> launches;
  Bytes bytes;
};

class Prefetcher {
 public:
  Prefetcher(Graph& graph, const PrefetchOptions& options, PassContext& context)
      : graph_(graph), options_(options), context_(context), weights_(graph), scheduler_(graph) {}

  Result<Changed> Run() {
    HEDDLE_RETURN_IF_ERROR(CheckOptions());
    for (auto [phase, depth] : {std::pair(Phase::kForward, options_.forward),
                                std::pair(Phase::kBackward, options_.backward)}) {
      std::vector<Stop> stops = StopsOf(phase);
      HEDDLE_RETURN_IF_ERROR(CheckCap(stops));
      LaunchAhead(stops, depth);
    }
    DeferReductions();
    if (!any_) {
      context_.AddRemark(graph_, ValueId(), RemarkKind::kNoEffect,
                         "the graph gathers at most one unit and reduces no gradients");
      return Changed::kNo;
    }
    std::vector<NodeId> order = scheduler_.Run();
    if (std::ranges::is_sorted(order)) return Changed::kNo;
    Rewriter rewriter(graph_);
    rewriter.Reorder(order);
    return rewriter.Commit();
  }

 private:
  Status CheckOptions() const {
    for (auto [name, value, least] :
         {std::tuple("forward", options_.forward, 0), std::tuple("backward", options_.backward, 0),
          std::tuple("reductions", options_.reductions, 1)}) {
      if (value < least)
        return Error(Diag::kPassOption, "`{}` is {}; expected at least {}", name, value, least);
    }
    if (options_.max_bytes.value < 0)
      return Error(Diag::kPassOption, "`max_bytes` is {}; expected at least 0",
                   options_.max_bytes.value);
    return Done{};
  }

  // A launch without a unit is its own unit. One with several units belongs to the first.
  std::string UnitOfLaunch(NodeId launch) const {
    std::string_view unit = UnitOf(graph_, launch, 0);
    return unit.empty() ? fmt::format("%{}", graph_.name(graph_[launch].first_result))
                        : std::string(unit);
  }

  // Units that the phase gathers or reads, in the order in which it needs them.
  std::vector<Stop> StopsOf(Phase phase) const {
    std::map<std::string, Stop> by_unit;
    auto stop = [&](const std::string& unit) -> Stop& {
      return by_unit.try_emplace(unit, Stop{unit, {}, {}, {}}).first->second;
    };
    for (NodeId id : graph_.nodes()) {
      if (graph_[id].phase != phase) continue;
      if (IsUnshard(graph_, id)) {
        Stop& own = stop(UnitOfLaunch(id));
        own.launches.push_back(id);
        own.bytes += graph_.types().bytes(graph_.type(graph_[id].first_result));
        continue;
      }
      ForEachGathered(id, [&](ValueId v) {
        Stop& own = stop(UnitOfLaunch(weights_.gather(v)));
        if (!own.needed) own.needed = id;
      });
    }
    std::vector<Stop> stops;
    for (auto& [unit, own] : by_unit) {
      if (own.needed) stops.push_back(std::move(own));
    }
    std::ranges::sort(stops, {}, &Stop::needed);
    return stops;
  }

  // Visits gathered weights that the node waits for, or reads from another phase.
  template <typename Visit>
  void ForEachGathered(NodeId id, Visit&& visit) const {
    if (graph_[id].op == op::comm_wait) {
      for (ValueId v : graph_.results(id)) {
        if (weights_.is_gathered(v)) visit(v);
      }
      return;
    }
    for (ValueId v : graph_.operands(id)) {
      if (weights_.is_gathered(v)) visit(v);
    }
  }

  Status CheckCap(const std::vector<Stop>& stops) const {
    if (options_.max_bytes.value == 0) return Done{};
    for (const Stop& stop : stops) {
      if (stop.bytes > options_.max_bytes)
        return Error(Diag::kPassOption, "`max_bytes` is {}, but unit `{}` alone gathers {}",
                     Format(options_.max_bytes), stop.unit, Format(stop.bytes));
    }
    return Done{};
  }

  void LaunchAhead(const std::vector<Stop>& stops, int64_t depth) {
    // The unit before which the last launches are. Later launches go there or further down.
    size_t floor = 0;
    Bytes in_flight;
    size_t counted = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      size_t asked = static_cast<size_t>(std::max<int64_t>(0, static_cast<int64_t>(i) - depth));
      size_t ahead_of = std::max(asked, floor);
      in_flight += stops[i].bytes;
      for (; counted < ahead_of; ++counted) in_flight = in_flight - stops[counted].bytes;
      if (options_.max_bytes.value > 0 && in_flight > options_.max_bytes) {
        for (; in_flight > options_.max_bytes; ++counted)
          in_flight = in_flight - stops[counted].bytes;
        ahead_of = counted;
        context_.AddRemark(
            graph_, ValueId(), RemarkKind::kPrefetchCapped,
            "unit `{}` is gathered {} ahead instead of {}: more than {} would be in flight",
            stops[i].unit, i - ahead_of, i - asked, Format(options_.max_bytes));
      }
      floor = ahead_of;
      for (NodeId launch : stops[i].launches) {
        any_ = true;
        if (!scheduler_.PreferBefore(launch, stops[ahead_of].needed)) continue;
        HoistBefore(graph_, weights_, launch, stops[ahead_of].needed, scheduler_);
        context_.Count("launches");
      }
    }
  }

  struct Reduction {
    NodeId launch;
    NodeId wait;
  };

  // Reductions by communicator, in launch order. Communicators are in the order of their first
  // launches, so that an all-reduce comes after the reduce-scatter that it depends on.
  std::vector<std::vector<Reduction>> ReductionsOfBackward() const {
    std::map<std::pair<uint64_t, uint8_t>, std::vector<Reduction>> by_communicator;
    for (NodeId id : graph_.nodes()) {
      if (graph_[id].op != op::comm_wait || graph_[id].phase != Phase::kBackward) continue;
      NodeId start = graph_[graph_.operands(id)[0]].producer;
      if (!start || !IsGradReduction(graph_, start)) continue;
      uint64_t over = std::get<Axes>(*graph_.attrs(start).Find("over")).bits();
      by_communicator[{over, graph_[start].stream}].push_back({start, id});
    }
    std::vector<std::vector<Reduction>> lists;
    for (auto& [communicator, reductions] : by_communicator) {
      std::ranges::sort(reductions, {}, &Reduction::launch);
      lists.push_back(std::move(reductions));
    }
    std::ranges::sort(lists, {}, [](const auto& list) { return list[0].launch; });
    return lists;
  }

  void DeferReductions() {
    const Uses uses(graph_);
    size_t behind = static_cast<size_t>(options_.reductions) - 1;
    // Indexed by wait: the node that it moves after.
    std::vector<NodeId> deferred(graph_.node_count());
    for (const std::vector<Reduction>& reductions : ReductionsOfBackward()) {
      any_ = true;
      for (size_t i = 0; i < reductions.size(); ++i) {
        size_t last = std::min(i + behind, reductions.size() - 1);
        NodeId wait = reductions[i].wait;
        NodeId later = LaunchedBehind(deferred, reductions[last].launch);
        NodeId reader = FirstReader(uses, wait);
        if (reader && reader <= later) later = NodeId(reader.index() - 1);
        if (last == i || later <= wait) continue;
        scheduler_.PreferAfter(wait, later);
        deferred[wait.index()] = later;
        context_.Count("waits");
      }
    }
  }

  // The node after which the launch is: its own position, or the wait for its input.
  NodeId LaunchedBehind(const std::vector<NodeId>& deferred, NodeId launch) const {
    NodeId behind = launch;
    for (ValueId v : graph_.operands(launch)) {
      NodeId node = graph_[v].producer;
      while (node && weights_.carries_gradient(node) && graph_[node].op != op::comm_wait)
        node = graph_[graph_.operands(node)[0]].producer;
      if (node && deferred[node.index()]) behind = std::max(behind, deferred[node.index()]);
    }
    return behind;
  }

  // The first node of backward that computes with the results of the wait.
  NodeId FirstReader(const Uses& uses, NodeId wait) const {
    NodeId first;
    std::vector<NodeId> open{wait};
    while (!open.empty()) {
      NodeId id = open.back();
      open.pop_back();
      for (ValueId v : graph_.results(id)) {
        for (const Use& use : uses.of(v)) {
          if (graph_[use.node].phase != Phase::kBackward) continue;
          if (weights_.carries_gradient(use.node)) {
            // An all-reduce after a reduce-scatter has its own wait.
            if (!IsGradReduction(graph_, use.node)) open.push_back(use.node);
          } else if (!first || use.node < first) {
            first = use.node;
          }
        }
      }
    }
    return first;
  }

  Graph& graph_;
  const PrefetchOptions& options_;
  PassContext& context_;
  Weights weights_;
  Scheduler scheduler_;
  bool any_ = false;
};

Result<Changed> Prefetch(Graph& graph, const PrefetchOptions& options, PassContext& context) {
  return Prefetcher(graph, options, context).Run();
}

constexpr OptionDef kPrefetchOptions[] = {
    Option<&PrefetchOptions::forward>("forward", "number of units that forward gathers ahead"),
    Option<&PrefetchOptions::backward>("backward", "number of units that backward gathers ahead"),
    Option<&PrefetchOptions::reductions>(
        "reductions", "maximum number of gradient reductions in flight on a communicator"),
    Option<&PrefetchOptions::max_bytes>(
        "max_bytes", "maximum bytes of gathers in flight, per phase (0: no limit)")};
constexpr std::string_view kPrefetchStats[] = {"launches", "waits"};

}  // namespace

HEDDLE_DEFINE_PASS(prefetch){
    .name = "prefetch",
    .summary =
        "Gathers weights before their units need them, and waits for gradient reductions later",
    .run = Run<Prefetch>,
    .make_options = Make<PrefetchOptions>,
    .options = kPrefetchOptions,
    .any_view = false,
    .needs = View::kLocal,
    .reorders_launches = true,
    .stats = kPrefetchStats,
};

}  // namespace heddle::compile
