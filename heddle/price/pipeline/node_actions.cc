#include "heddle/price/pipeline/node_actions.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "heddle/core/analysis/blocks.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/ops/ops.h"

namespace heddle::price {
namespace {

constexpr int32_t kOnce = -1;
constexpr int32_t kUnknown = -1;

// The number after the last dot, or kOnce.
int32_t NumberOf(std::string_view text) {
  std::string_view digits = text.substr(text.rfind('.') + 1);
  int32_t number = kOnce;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : kOnce;
}

// Sorts `layers.10` after `layers.9`.
std::pair<std::string_view, int32_t> OrderOf(std::string_view block) {
  return {block.substr(0, block.rfind('.')), NumberOf(block)};
}

bool IsBackward(const Graph& graph, NodeId id) { return graph[id].phase == Phase::kBackward; }

}  // namespace

NodeActions::NodeActions(const Module& module, std::vector<int64_t> first_positions)
    : first_positions_(std::move(first_positions)) {
  FindPositions(module);
  if (first_positions_.empty()) FindStages();
  for (size_t i = 0; i < module.graphs.size(); ++i) {
    const Graph& graph = module.graphs[i];
    std::vector<PipelineAction>& actions = actions_.emplace_back(
        graph.node_count(), PipelineAction{kUnknown, PipelineWork::kForward, kOnce, false});
    FindMicroBatches(graph, actions);
    FindStagesOfNodes(graph, positions_[i], actions);
    FindInputGradients(graph, actions);
  }
}

void NodeActions::FindPositions(const Module& module) {
  std::map<std::pair<std::string_view, int32_t>, int64_t> position;
  std::vector<Blocks> blocks;
  for (const Graph& graph : module.graphs) {
    blocks.emplace_back(graph);
    for (int64_t b = 0; b < blocks.back().count(); ++b) position[OrderOf(blocks.back().name(b))];
  }
  int64_t next = 0;
  for (auto& [name, number] : position) number = ++next;
  for (size_t i = 0; i < module.graphs.size(); ++i) {
    std::vector<int64_t>& own = positions_.emplace_back(module.graphs[i].node_count());
    std::vector<int64_t> of_block;
    for (int64_t b = 0; b < blocks[i].count(); ++b)
      of_block.push_back(position[OrderOf(blocks[i].name(b))]);
    for (NodeId id : module.graphs[i].nodes()) {
      NodeId launch = LaunchOf(module.graphs[i], id);
      // The scope of a receive is that of the other coordinate.
      bool received = module.graphs[i][launch ? launch : id].op == op::comm_recv;
      int64_t block = received ? Blocks::kNone : blocks[i].of(id);
      if (block != Blocks::kNone) own[id.index()] = of_block[static_cast<size_t>(block)];
    }
  }
}

void NodeActions::FindStages() {
  std::map<int64_t, size_t> graph_of;
  for (size_t i = 0; i < positions_.size(); ++i) {
    for (int64_t position : positions_[i]) {
      if (position > 0) graph_of[position] = i;
    }
  }
  first_positions_ = {0};
  for (auto at = graph_of.begin(); at != graph_of.end(); ++at) {
    if (at != graph_of.begin() && std::prev(at)->second != at->second)
      first_positions_.push_back(at->first);
  }
}

void NodeActions::FindMicroBatches(const Graph& graph, std::vector<PipelineAction>& actions) {
  std::vector<int32_t> of_value(graph.value_count(), kOnce);
  // Values after the reduction of a gradient.
  std::vector<bool> reduced(graph.value_count());
  for (const Input& input : graph.inputs()) {
    if (input.role == InputRole::kBatch) of_value[input.value.index()] = NumberOf(input.label);
    micro_batches_ = std::max<int64_t>(micro_batches_, of_value[input.value.index()] + 1);
  }
  for (NodeId id : graph.nodes()) {
    if (graph[id].phase == Phase::kOptimizer) continue;
    int32_t latest = kOnce;
    if (graph[id].op == op::comm_recv)
      latest = NumberOf(std::get<std::string>(*graph.attrs(id).Find("tag")));
    bool once = IsLaunch(graph, id) && IsGradReduction(graph, id);
    for (ValueId v : graph.operands(id)) {
      if (!v) continue;
      latest = std::max(latest, of_value[v.index()]);
      once |= reduced[v.index()];
    }
    for (ValueId v : graph.results(id)) {
      of_value[v.index()] = once ? kOnce : latest;
      reduced[v.index()] = once;
    }
    actions[id.index()].micro_batch = once ? kOnce : latest;
    micro_batches_ = std::max<int64_t>(micro_batches_, latest + 1);
  }
}

void NodeActions::FindStagesOfNodes(const Graph& graph, const std::vector<int64_t>& positions,
                                    std::vector<PipelineAction>& actions) const {
  auto last = static_cast<int32_t>(first_positions_.size()) - 1;
  // Values that a layer of this coordinate or another coordinate has made, by phase.
  std::vector<bool> layered[2];
  for (std::vector<bool>& values : layered) values.resize(graph.value_count());
  for (NodeId id : graph.nodes()) {
    PipelineAction& action = actions[id.index()];
    if (action.micro_batch == kOnce) continue;
    bool backward = IsBackward(graph, id);
    if (backward) action.work = PipelineWork::kWeightGradient;
    bool after = false;
    for (ValueId v : graph.operands(id)) after |= v && layered[backward][v.index()];
    NodeId launch = LaunchOf(graph, id);
    bool receives = graph[launch ? launch : id].op == op::comm_recv;
    if (positions[id.index()] > 0) {
      auto next = std::ranges::upper_bound(first_positions_, positions[id.index()]);
      action.stage = static_cast<int32_t>(next - first_positions_.begin()) - 1;
    } else if (!receives && after) {
      action.stage = backward ? 0 : last;
    }
    for (ValueId v : graph.results(id))
      layered[backward][v.index()] = after || receives || positions[id.index()] > 0;
  }
  // Others belong to the stage that reads them.
  std::vector<int32_t> reader(graph.value_count(), kUnknown);
  for (size_t i = graph.node_count(); i-- > 0;) {
    NodeId id(i);
    PipelineAction& action = actions[i];
    for (ValueId v : graph.results(id)) {
      if (action.stage == kUnknown) action.stage = reader[v.index()];
    }
    if (action.stage == kUnknown && action.micro_batch != kOnce)
      action.stage = IsBackward(graph, id) ? last : 0;
    for (ValueId v : graph.operands(id)) {
      bool same =
          v && IsBackward(graph, id) == (graph[v].producer && IsBackward(graph, graph[v].producer));
      if (same && action.micro_batch != kOnce) reader[v.index()] = action.stage;
    }
  }
}

// I is what another stage reads.
void NodeActions::FindInputGradients(const Graph& graph, std::vector<PipelineAction>& actions) {
  std::vector<bool> needed(graph.value_count());
  for (size_t i = graph.node_count(); i-- > 0;) {
    NodeId id(i);
    PipelineAction& action = actions[i];
    if (action.work != PipelineWork::kWeightGradient) continue;
    bool needs = graph[id].op == op::comm_send;
    for (ValueId v : graph.results(id)) needs |= needed[v.index()];
    if (needs && action.stage > 0) action.work = PipelineWork::kInputGradient;
    for (ValueId v : graph.operands(id)) {
      NodeId producer = v ? graph[v].producer : NodeId();
      if (!producer) continue;
      bool crosses = actions[producer.index()].stage != action.stage &&
                     actions[producer.index()].micro_batch != kOnce &&
                     action.micro_batch != kOnce && IsBackward(graph, producer);
      if (needs || crosses) needed[v.index()] = true;
    }
  }
}

}  // namespace heddle::price
