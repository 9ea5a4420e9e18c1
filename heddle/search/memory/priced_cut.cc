#include "heddle/search/memory/priced_cut.h"

#include <algorithm>

#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/core/analysis/max_flow.h"
#include "heddle/core/analysis/weights.h"

namespace heddle::search {
namespace {

// Upper limit of the sum of all capacities.
constexpr double kMostFlow = 0x1p60;

template <typename Tag>
double InDouble(Quantity<Tag> quantity) {
  return static_cast<double>(quantity.value);
}

}  // namespace

PricedCut::PricedCut(const Graph& graph, const Weights& weights, std::span<const Nanos> again)
    : graph_(graph),
      weights_(weights),
      again_(again),
      place_(graph.value_count(), -1),
      read_behind_(graph.value_count()),
      node_place_(graph.node_count(), -1) {
  FindNetwork();
}

bool PricedCut::IsThereAnyway(ValueId v) const {
  return !v || !graph_[v].producer || weights_.is_weight(v) ||
         compile::AsksToKeep(graph_[v].keep) || graph_.types()[graph_.type(v)].async;
}

void PricedCut::Reach(ValueId v) {
  if (IsThereAnyway(v) || place_[v.index()] >= 0) return;
  place_[v.index()] = static_cast<int64_t>(values_.size());
  values_.push_back(v);
}

void PricedCut::FindNetwork() {
  for (NodeId node : graph_.nodes()) {
    for (ValueId v : graph_.operands(node)) {
      if (!compile::Crosses(graph_, node, v)) continue;
      read_behind_[v.index()] = true;
      Reach(v);
    }
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    NodeId node = graph_[values_[i]].producer;
    if (!compile::CanRecompute(graph_, node)) continue;
    if (graph_.op(node).effect() != Effect::kView) decisions_.push_back(values_[i]);
    if (node_place_[node.index()] >= 0) continue;
    node_place_[node.index()] = static_cast<int64_t>(nodes_.size());
    nodes_.push_back(node);
    for (ValueId needed : compile::NeededAgain(graph_, node)) Reach(needed);
  }
  std::ranges::sort(decisions_);
}

// A node has one vertex, and a value has two, whose edge is cut if the value is kept. The edge from
// the source to a node is cut if the node is recomputed: it is then on the side of the sink, with
// all its operands.
Corner PricedCut::At(Price price) {
  double all = 1;
  for (ValueId v : values_) all += InDouble(BytesOf(v)) * InDouble(price.time);
  for (NodeId node : nodes_) all += InDouble(again_[node.index()]) * InDouble(price.bytes);
  double scale = std::min(1.0, kMostFlow / all);
  MaxFlow flow;
  FlowNodeId source = flow.AddNode();
  FlowNodeId sink = flow.AddNode();
  std::vector<FlowNodeId> in(values_.size());
  std::vector<FlowNodeId> out(values_.size());
  std::vector<FlowNodeId> run(nodes_.size());
  for (size_t i = 0; i < values_.size(); ++i) {
    in[i] = flow.AddNode();
    out[i] = flow.AddNode();
  }
  for (FlowNodeId& node : run) node = flow.AddNode();
  for (size_t i = 0; i < values_.size(); ++i) {
    ValueId v = values_[i];
    NodeId node = graph_[v].producer;
    int64_t place = node_place_[node.index()];
    // Keeping a view means keeping its operand.
    bool never_kept = place >= 0 && (graph_.op(node).effect() == Effect::kView ||
                                     graph_[v].keep == Keep::kMustRecompute);
    auto price_of_keeping =
        static_cast<int64_t>(InDouble(BytesOf(v)) * InDouble(price.time) * scale);
    flow.AddEdge(in[i], out[i], never_kept ? MaxFlow::kInfinite : price_of_keeping);
    flow.AddEdge(place >= 0 ? run[static_cast<size_t>(place)] : source, in[i], MaxFlow::kInfinite);
    if (read_behind_[v.index()]) flow.AddEdge(out[i], sink, MaxFlow::kInfinite);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    flow.AddEdge(
        source, run[i],
        static_cast<int64_t>(InDouble(again_[nodes_[i].index()]) * InDouble(price.bytes) * scale));
    for (ValueId needed : compile::NeededAgain(graph_, nodes_[i])) {
      int64_t place = needed ? place_[needed.index()] : -1;
      if (place >= 0) flow.AddEdge(out[static_cast<size_t>(place)], run[i], MaxFlow::kInfinite);
    }
  }
  flow.Solve(source, sink);
  Corner cut{.marks = Marks(graph_.value_count(), Keep::kDefault), .kept = {}, .again = {}};
  for (size_t i = 0; i < values_.size(); ++i) {
    ValueId v = values_[i];
    if (flow.OnSinkSide(in[i])) {
      cut.marks[v.index()] = Keep::kPreferRecompute;
    } else if (flow.OnSinkSide(out[i])) {
      cut.marks[v.index()] = Keep::kMustSave;
      cut.kept += BytesOf(v);
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (flow.OnSinkSide(run[i])) cut.again += again_[nodes_[i].index()];
  }
  answers_.push_back({price, cut.kept, cut.again});
  return cut;
}

std::vector<Corner> PricedCut::Corners(size_t most) {
  std::vector<Corner> corners;
  // The ends of the curve: memory is almost free, and time is almost free.
  corners.push_back(At({Nanos{1}, Bytes{int64_t{1} << 40}}));
  corners.push_back(At({Nanos{int64_t{1} << 40}, Bytes{1}}));
  if (corners[1].kept >= corners[0].kept) corners.pop_back();
  // By corner: whether the part of the curve after it has no further corner.
  std::vector<bool> straight(corners.size());
  while (corners.size() < most) {
    size_t widest = corners.size();
    Bytes width;
    for (size_t i = 0; i + 1 < corners.size(); ++i) {
      Bytes here = corners[i].kept - corners[i + 1].kept;
      if (straight[i] || here <= width) continue;
      width = here;
      widest = i;
    }
    if (widest == corners.size()) break;
    Corner& a = corners[widest];
    Corner& b = corners[widest + 1];
    Nanos time = b.again - a.again;
    if (time <= Nanos{}) {
      straight[widest] = true;
      continue;
    }
    Corner between = At({time, width});
    bool is_new = between.kept < a.kept && between.kept > b.kept;
    straight[widest] = !is_new;
    if (!is_new) continue;
    corners.insert(corners.begin() + static_cast<ptrdiff_t>(widest) + 1, std::move(between));
    straight.insert(straight.begin() + static_cast<ptrdiff_t>(widest) + 1, false);
  }
  return corners;
}

// The dual of the problem: at any price, the answer minimizes time + price * bytes.
Nanos PricedCut::Bound(Bytes kept) const {
  double best = 0;
  for (const Answer& answer : answers_) {
    double price = InDouble(answer.price.time) / InDouble(answer.price.bytes);
    best = std::max(best, InDouble(answer.again) + price * InDouble(answer.kept - kept));
  }
  return Nanos{static_cast<int64_t>(best)};
}

}  // namespace heddle::search
