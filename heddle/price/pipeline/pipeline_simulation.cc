#include "heddle/price/pipeline/pipeline_simulation.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/pipeline/bounds.h"
#include "heddle/price/pipeline/node_actions.h"

namespace heddle::price {
namespace {

constexpr std::string_view kKinds[] = {"fill", "steady", "drain"};

bool IsBackward(const PipelineAction& action) { return action.work != PipelineWork::kForward; }

class Describer {
 public:
  Describer(const Module& module, std::span<const Simulation> simulations,
            const PipelineFacts& facts)
      : module_(module),
        simulations_(simulations),
        actions_(module, facts.first_positions),
        transfers_(FindTransfers(module)) {
    out_.schedule = facts.schedule;
    out_.stages = actions_.stages();
    out_.micro_batches = actions_.micro_batches();
    for (const Simulation& s : simulations) out_.step = std::max(out_.step, s.timeline.makespan);
    out_.coordinates.resize(simulations.size());
  }

  PipelineSimulation Run() {
    for (size_t i = 0; i < simulations_.size(); ++i) {
      FindActions(i);
      FindBubbles(i);
      out_.bubble += out_.coordinates[i].bubble;
    }
    out_.bubble = {out_.bubble.value / static_cast<int64_t>(simulations_.size())};
    auto slowest = std::ranges::max_element(out_.coordinates, {}, &CoordinateTimes::busy);
    out_.slowest = static_cast<size_t>(slowest - out_.coordinates.begin());
    out_.bound = FindBound();
    for (const Simulation& s : simulations_) out_.bound = std::max(out_.bound, s.bounds.best());
    return std::move(out_);
  }

 private:
  // Time of a node on the compute stream, without waits for other coordinates.
  Nanos TimeOf(size_t graph, NodeId id) const {
    const NodeTimes& times = simulations_[graph].timeline.nodes[id.index()];
    NodeId launch = LaunchOf(module_.graphs[graph], id);
    bool transfer = launch && IsTransfer(module_.graphs[graph], launch);
    const Task& task = simulations_[graph].graph[id];
    if (task.kind == Task::Kind::kStart) return times.left - times.reached;
    return times.left - (transfer ? times.begin : times.reached);
  }

  void FindActions(size_t graph) {
    std::vector<TimedAction>& list = out_.coordinates[graph].actions;
    const Timeline& t = simulations_[graph].timeline;
    for (NodeId id : t.order) {
      const PipelineAction* action = actions_.of(graph, id);
      Nanos time = TimeOf(graph, id);
      if (action == nullptr || time.value == 0) continue;
      Nanos end = t.nodes[id.index()].left;
      bool same = !list.empty() && list.back().action.stage == action->stage &&
                  list.back().action.micro_batch == action->micro_batch &&
                  IsBackward(list.back().action) == IsBackward(*action);
      if (same) {
        // Both parts together are B.
        if (list.back().action.work != action->work)
          list.back().action.work = PipelineWork::kBackward;
        list.back().end = end;
      } else {
        list.push_back({*action, end - time, end});
      }
    }
  }

  void FindBubbles(size_t graph) {
    CoordinateTimes& out = out_.coordinates[graph];
    const Timeline& t = simulations_[graph].timeline;
    Nanos first = out.actions.empty() ? Nanos{} : out.actions.front().begin;
    Nanos last = out.actions.empty() ? out_.step : out.actions.back().end;
    for (const CollectiveTimes& c : t.collectives) {
      if (!IsTransfer(module_.graphs[graph], c.start) || !c.wait || c.exposed.value == 0) continue;
      const Attrs& attrs = module_.graphs[graph].attrs(c.start);
      bool sends = module_.graphs[graph][c.start].op == op::comm_send;
      const NodeTimes& wait = t.nodes[c.wait.index()];
      Nanos arrived = std::clamp(t.nodes[c.start.index()].begin, wait.reached, wait.begin);
      out.bubbles.push_back(
          {.kind = wait.reached < first  ? BubbleKind::kFill
                   : wait.reached < last ? BubbleKind::kSteady
                                         : BubbleKind::kDrain,
           .begin = wait.reached,
           .end = wait.begin,
           .hop = wait.begin - arrived,
           .tag = std::get<std::string>(*attrs.Find("tag")),
           .other = static_cast<size_t>(std::get<int64_t>(*attrs.Find(sends ? "to" : "from")))});
    }
    std::ranges::sort(out.bubbles, {}, &Bubble::begin);
    if (t.makespan < out_.step) {
      auto longest = std::ranges::max_element(
          simulations_, {}, [](const Simulation& s) { return s.timeline.makespan; });
      out.bubbles.push_back({.kind = BubbleKind::kDrain,
                             .begin = t.makespan,
                             .end = out_.step,
                             .hop = {},
                             .tag = {},
                             .other = static_cast<size_t>(longest - simulations_.begin())});
    }
    out.busy = out_.step;
    for (const Bubble& bubble : out.bubbles) {
      out.hop += bubble.hop;
      out.bubble += bubble.end - bubble.begin - bubble.hop;
    }
    out.busy -= out.hop + out.bubble;
  }

  // The bound of schedules whose actions take the least time that each takes for a micro-batch, and
  // the work that can begin only when all gradients are there.
  Nanos FindBound() const {
    std::vector<int32_t> rank_of_stage(static_cast<size_t>(out_.stages));
    PipelineCosts costs{.stages = std::vector<StageCost>(rank_of_stage.size()), .hop = FindHop()};
    std::vector<int64_t> in_flight;
    for (size_t graph = 0; graph < simulations_.size(); ++graph) {
      in_flight.push_back(InFlight(graph));
      // By stage, micro-batch and part: F, I, W.
      std::map<std::pair<int32_t, int32_t>, std::array<Nanos, 3>> times;
      for (NodeId id : module_.graphs[graph].nodes()) {
        const PipelineAction* action = actions_.of(graph, id);
        if (action == nullptr) continue;
        size_t part = action->work == PipelineWork::kForward         ? 0
                      : action->work == PipelineWork::kInputGradient ? 1
                                                                     : 2;
        times[{action->stage, action->micro_batch}][part] += TimeOf(graph, id);
      }
      std::set<int32_t> seen;
      for (const auto& [key, parts] : times) {
        auto stage = static_cast<size_t>(key.first);
        StageCost& cost = costs.stages[stage];
        rank_of_stage[stage] = static_cast<int32_t>(graph);
        bool first = seen.insert(key.first).second;
        cost.forward = first ? parts[0] : std::min(cost.forward, parts[0]);
        cost.input_gradient = first ? parts[1] : std::min(cost.input_gradient, parts[1]);
        cost.weight_gradient = first ? parts[2] : std::min(cost.weight_gradient, parts[2]);
      }
    }
    return FindPipelineBounds(rank_of_stage, out_.micro_batches, costs, in_flight).within_memory +
           FindAfter();
  }

  // The fastest transfer of a micro-batch.
  Nanos FindHop() const {
    Nanos hop{INT64_MAX};
    for (const TransferEnds& ends : transfers_) {
      if (actions_.of(ends.from, ends.send) != nullptr)
        hop = std::min(hop, simulations_[ends.from].graph[ends.send].alone());
    }
    return hop.value == INT64_MAX ? Nanos{} : hop;
  }

  // The most activations alive, from F to the end of the last backward; at least 1.
  int64_t InFlight(size_t graph) const {
    std::map<std::pair<int32_t, int32_t>, size_t> last;
    const std::vector<TimedAction>& list = out_.coordinates[graph].actions;
    for (size_t i = 0; i < list.size(); ++i)
      last[{list[i].action.stage, list[i].action.micro_batch}] = i;
    std::set<std::pair<int32_t, int32_t>> alive;
    size_t most = 1;
    for (size_t i = 0; i < list.size(); ++i) {
      std::pair key(list[i].action.stage, list[i].action.micro_batch);
      alive.insert(key);
      most = std::max(most, alive.size());
      if (last[key] == i && IsBackward(list[i].action)) alive.erase(key);
    }
    return static_cast<int64_t>(most);
  }

  // The most work that a coordinate does after it has received the sum of all squares, or all parts
  // of it.
  Nanos FindAfter() const {
    // Values that depend on squares of gradients, by graph, and receives of such values.
    std::vector<std::vector<bool>> after;
    std::vector<std::vector<bool>> received;
    for (const Graph& graph : module_.graphs) {
      after.emplace_back(graph.value_count());
      received.emplace_back(graph.node_count());
    }
    std::vector<Nanos> work(module_.graphs.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < module_.graphs.size(); ++i)
        work[i] = FollowSquares(i, received[i], after[i]);
      for (const TransferEnds& ends : transfers_) {
        const Graph& from = module_.graphs[ends.from];
        if (!after[ends.from][from.operands(ends.send)[0].index()]) continue;
        changed |= !received[ends.to][ends.receive.index()];
        received[ends.to][ends.receive.index()] = true;
      }
    }
    return *std::ranges::max_element(work);
  }

  // Marks values, and returns the time of the marked nodes after the last receive.
  Nanos FollowSquares(size_t at, const std::vector<bool>& received,
                      std::vector<bool>& after) const {
    const Graph& graph = module_.graphs[at];
    Nanos work;
    for (NodeId id : graph.nodes()) {
      bool depends = false;
      for (ValueId v : graph.operands(id)) depends |= v && after[v.index()];
      NodeId launch = LaunchOf(graph, id);
      if (launch && received[launch.index()]) {
        work = {};
      } else if (depends) {
        work += TimeOf(at, id);
      }
      bool marked = depends || received[id.index()] || graph[id].op == op::heddle_squared_norm;
      for (ValueId v : graph.results(id)) after[v.index()] = marked;
    }
    return work;
  }

  const Module& module_;
  std::span<const Simulation> simulations_;
  NodeActions actions_;
  std::vector<TransferEnds> transfers_;
  PipelineSimulation out_;
};

}  // namespace

std::string_view Name(BubbleKind kind) { return kKinds[static_cast<size_t>(kind)]; }

double PipelineSimulation::gap() const {
  return bound.value == 0 ? 0
                          : static_cast<double>(step.value) / static_cast<double>(bound.value) - 1;
}

PipelineSimulation DescribePipeline(const Module& module, std::span<const Simulation> simulations,
                                    const PipelineFacts& facts) {
  return Describer(module, simulations, facts).Run();
}

}  // namespace heddle::price
