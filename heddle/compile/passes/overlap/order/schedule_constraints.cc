#include "heddle/compile/passes/overlap/order/schedule_constraints.h"

#include <algorithm>
#include <numeric>

#include "heddle/compile/passes/fsdp/scheduler.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/kernel_time.h"
#include "heddle/price/sim/explain/movable.h"

namespace heddle::compile {
namespace {

// Coordinates of a pipeline launch and await their transfers in an order that both ends agree on.
bool IsPartOfTransfer(const Graph& graph, NodeId id) {
  NodeId launch = LaunchOf(graph, id);
  return IsTransfer(graph, launch ? launch : id);
}

}  // namespace

ScheduleConstraints::ScheduleConstraints(const Graph& graph, const price::SimGraph& sim,
                                         Freedom freedom)
    : freedom_(freedom),
      moves_(graph.node_count()),
      roles_(graph.node_count(), Role::kAnchor),
      place_(graph.node_count(), kNone),
      collective_of_(graph.node_count(), kNone),
      deferrable_(graph.node_count()) {
  AddEdges(graph);
  AddCollectives(graph, sim);
  AddRoles(graph, sim);
  AddWindows();
  AddDeferrable(graph);
}

void ScheduleConstraints::AddEdges(const Graph& graph) {
  std::vector<OrderEdge> edges = OrderEdges(graph);
  auto by = [](const OrderEdge& e) { return std::pair(e.from, e.to); };
  std::ranges::sort(edges, {}, by);
  edges.erase(std::ranges::unique(edges, {}, by).begin(), edges.end());
  before_.begin.assign(graph.node_count() + 1, 0);
  after_.begin.assign(graph.node_count() + 1, 0);
  for (const OrderEdge& edge : edges) {
    ++before_.begin[edge.to + 1];
    ++after_.begin[edge.from + 1];
  }
  for (Lists* lists : {&before_, &after_}) {
    std::partial_sum(lists->begin.begin(), lists->begin.end(), lists->begin.begin());
    lists->items.resize(edges.size());
  }
  std::vector<uint32_t> next = before_.begin;
  for (size_t i = 0; i < edges.size(); ++i) {
    after_.items[i] = edges[i].to;
    before_.items[next[edges[i].to]++] = edges[i].from;
  }
}

void ScheduleConstraints::AddCollectives(const Graph& graph, const price::SimGraph& sim) {
  for (NodeId id : graph.nodes()) {
    const price::Task& task = sim[id];
    // Copies to the host and back keep their positions, because nothing else bounds how long their
    // memory is free.
    if (task.kind == price::Task::Kind::kStart && CollectiveKindOf(graph[id].op)) {
      Collective c{.start = id.index(), .stream = task.stream, .length = task.alone()};
      c.reduction = IsGradReduction(graph, id);
      c.held = sim.born(id);
      for (ValueId v : graph.operands(id)) c.held += graph.types().bytes(graph.type(v));
      collective_of_[id.index()] = static_cast<uint32_t>(collectives_.size());
      roles_[id.index()] = Role::kStart;
      collectives_.push_back(c);
    } else if (task.kind == price::Task::Kind::kWait && task.start != price::Task::kNone &&
               collective_of_[task.start] != kNone) {
      uint32_t number = collective_of_[task.start];
      if (collectives_[number].wait != kNone) continue;
      collectives_[number].wait = id.index();
      collective_of_[id.index()] = number;
      roles_[id.index()] = Role::kWait;
    }
  }
}

std::vector<bool> ScheduleConstraints::FindMadeAgain(const Graph& graph) const {
  std::vector<bool> tangent(graph.value_count());
  for (const Input& input : graph.inputs()) {
    if (input.role == InputRole::kTangent) tangent[input.value.index()] = true;
  }
  // Backward nodes that derive from values of forward only, up to the first collective of
  // activations.
  std::vector<bool> again(graph.node_count());
  for (NodeId id : graph.nodes()) {
    if (graph[id].phase != Phase::kBackward) continue;
    if (freedom_ == Freedom::kLight && IsMatrixWork(graph.op(id))) continue;
    bool start = roles_[id.index()] == Role::kStart;
    again[id.index()] = !start || IsUnshard(graph, id);
    for (ValueId v : graph.operands(id)) {
      NodeId producer = v ? graph[v].producer : NodeId();
      bool left =
          !v || (producer ? graph[producer].phase == Phase::kForward || again[producer.index()]
                          : !tangent[v.index()]);
      if (!left) again[id.index()] = false;
    }
  }
  std::vector<bool> feeds(graph.node_count());
  for (uint32_t node = static_cast<uint32_t>(node_count()); node-- > 0;) {
    if (!again[node]) continue;
    for (uint32_t later : after_.of(node)) {
      bool start = roles_[later] == Role::kStart && !IsUnshard(graph, NodeId(later));
      feeds[node] = feeds[node] || start || feeds[later];
    }
  }
  return feeds;
}

void ScheduleConstraints::AddRoles(const Graph& graph, const price::SimGraph& sim) {
  std::vector<bool> again(graph.node_count());
  if (freedom_ != Freedom::kNone) again = FindMadeAgain(graph);
  std::vector<bool> movable = price::FindMovable(graph);
  Weights weights(graph);
  std::vector<bool> reduced(graph.node_count());
  for (NodeId id : graph.nodes()) {
    uint32_t node = id.index();
    for (uint32_t earlier : before_.of(node)) reduced[node] = reduced[node] || reduced[earlier];
    if (roles_[node] == Role::kWait)
      reduced[node] = reduced[node] || collectives_[collective_of_[node]].reduction;
    if (roles_[node] != Role::kAnchor) continue;
    Effect effect = graph.op(id).effect();
    bool plain = sim[id].kind == price::Task::Kind::kCompute && effect != Effect::kRandom &&
                 effect != Effect::kOpaque && effect != Effect::kUpdate;
    bool carries = reduced[node] && weights.carries_gradient(id);
    bool made_of_weights = movable[node] && graph[id].phase != Phase::kOptimizer;
    const bool keeps_order = freedom_ != Freedom::kAll && IsMatrixWork(graph.op(id));
    if (plain && !keeps_order &&
        (effect == Effect::kView || made_of_weights || carries || again[node])) {
      roles_[node] = Role::kFollower;
      continue;
    }
    moves_[node] = freedom_ != Freedom::kNone && !keeps_order &&
                   (freedom_ == Freedom::kAll || plain) && !IsPartOfTransfer(graph, id);
    place_[node] = static_cast<uint32_t>(anchors_.size());
    anchors_.push_back(node);
  }
}

void ScheduleConstraints::AddWindows() {
  // Indexed by node: one past the last anchor that it depends on, and the first anchor that depends
  // on it.
  std::vector<uint32_t> release(node_count());
  std::vector<uint32_t> deadline(node_count(), kNone);
  for (uint32_t node = 0; node < node_count(); ++node) {
    for (uint32_t earlier : before_.of(node))
      release[node] = std::max(release[node], release[earlier]);
    if (roles_[node] == Role::kAnchor) release[node] = place_[node] + 1;
  }
  for (uint32_t node = static_cast<uint32_t>(node_count()); node-- > 0;) {
    for (uint32_t later : after_.of(node))
      deadline[node] = std::min(deadline[node], deadline[later]);
    if (roles_[node] == Role::kAnchor) deadline[node] = place_[node];
  }
  std::vector<bool> feeds(node_count());
  for (uint32_t node = static_cast<uint32_t>(node_count()); node-- > 0;) {
    for (uint32_t later : after_.of(node)) {
      bool leads =
          roles_[later] == Role::kStart || (roles_[later] == Role::kFollower && feeds[later]);
      feeds[node] = feeds[node] || leads;
    }
  }
  for (Collective& c : collectives_) {
    c.feeds = c.wait != kNone && feeds[c.wait];
    c.release = release[c.start];
    c.deadline = deadline[c.start];
  }
}

// Finds nodes whose results all lead to one gradient reduction, or to one output.
void ScheduleConstraints::AddDeferrable(const Graph& graph) {
  // Indexed by node: where all its results lead; kNone if unknown so far, kMany if to several
  // nodes.
  constexpr uint32_t kMany = kNone - 1;
  std::vector<uint32_t> end(node_count(), kNone);
  auto meet = [&](uint32_t& a, uint32_t b) { a = a == kNone || a == b ? b : kMany; };
  auto output = static_cast<uint32_t>(node_count());
  for (const Output& out : graph.outputs()) {
    NodeId producer = out.value ? graph[out.value].producer : NodeId();
    if (producer) meet(end[producer.index()], out.role == OutputRole::kGrad ? output : kMany);
    ++output;
  }
  for (uint32_t node = static_cast<uint32_t>(node_count()); node-- > 0;) {
    for (uint32_t later : after_.of(node)) {
      bool last = roles_[later] == Role::kStart && collectives_[collective_of_[later]].reduction;
      meet(end[node], last ? later : end[later]);
    }
    deferrable_[node] = (freedom_ == Freedom::kAll ||
                         (freedom_ == Freedom::kLight && !IsMatrixWork(graph.op(NodeId(node))))) &&
                        roles_[node] == Role::kAnchor && end[node] != kNone && end[node] != kMany &&
                        !IsPartOfTransfer(graph, NodeId(node)) &&
                        graph[NodeId(node)].phase == Phase::kBackward;
  }
}

}  // namespace heddle::compile
