#include "heddle/passes/memory/policy.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "heddle/analysis/launch.h"
#include "heddle/base/text.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/memory/recompute.h"

namespace heddle {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"none", "full", "layers:n", "selective",
                                                    "min-cut"};

Bytes BytesOf(const Graph& graph, std::span<const ValueId> values) {
  Bytes sum;
  for (ValueId v : values) {
    if (v) sum += graph.types().bytes(graph.type(v));
  }
  return sum;
}

}  // namespace

Result<CheckpointPolicy> CheckpointPolicy::Parse(std::string_view text) {
  constexpr std::string_view kEvery = "layers:";
  if (text.starts_with(kEvery)) {
    std::string_view digits = text.substr(kEvery.size());
    int64_t n = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (error == std::errc() && end == digits.data() + digits.size() && n >= 1)
      return CheckpointPolicy{Kind::kLayers, n};
    return Error(Diag::kPassOption, "`{}` is no number of blocks from 1 on, as in `layers:2`",
                 digits);
  }
  auto at = std::ranges::find(kNames, text);
  if (at == kNames.end())
    return Error(Diag::kPassOption, "`{}` is no policy; there are {}{}", text, Join(kNames, ", "),
                 NearestHint(text, kNames));
  return CheckpointPolicy{static_cast<Kind>(at - kNames.begin())};
}

BlockDecisions::BlockDecisions(const Graph& graph, const CheckpointPolicy& policy)
    : graph_(graph),
      policy_(policy),
      blocks_(graph),
      leaves_block_(graph.value_count()),
      selected_(graph.node_count()) {
  FindBlockOutputs();
  if (policy.kind == CheckpointPolicy::Kind::kSelective) FindSelected();
}

void BlockDecisions::FindBlockOutputs() {
  for (NodeId node : graph_.nodes()) {
    if (graph_[node].phase != Phase::kForward) continue;
    for (ValueId v : graph_.operands(node)) {
      NodeId producer = v ? graph_[v].producer : NodeId();
      if (producer && blocks_.of(producer) != blocks_.of(node)) leaves_block_[v.index()] = true;
    }
  }
}

// What TorchTitan keeps: every second matrix product of a block, from the first on; attention; what ranks have reduced or
// exchanged; maxima. The first sum of the residual stream is kept, too. Experts' products are not.
void BlockDecisions::FindSelected() {
  std::vector<int64_t> products(blocks_.count());
  std::vector<bool> has_sum(blocks_.count());
  for (NodeId node : graph_.nodes()) {
    int64_t block = blocks_.of(node);
    if (block == Blocks::kNone || graph_[node].phase != Phase::kForward) continue;
    OpId id = graph_[node].op;
    NodeId launch = LaunchOf(graph_, node);
    OpId launched = launch ? graph_[launch].op : OpId();
    bool selected = graph_.op(node).family == "attention" || id == op::max || id == op::max_dim ||
                    id == op::topk || launched == op::comm_reduce_scatter ||
                    launched == op::comm_all_to_all;
    if (graph_.op(node).family == "matmul" && id != op::_grouped_mm)
      selected = products[block]++ % 2 == 0;
    if (id == op::add_Tensor && blocks_.at_top(node) && !has_sum[block])
      selected = has_sum[block] = true;
    selected_[node.index()] = selected;
  }
}

// Whether the node waits for what ranks made smaller of values that the block is given.
bool BlockDecisions::EntersSmaller(NodeId node) const {
  NodeId launch = LaunchOf(graph_, node);
  if (!launch) return false;
  std::span<const ValueId> given = graph_.operands(launch);
  bool outside = std::ranges::none_of(given, [&](ValueId v) {
    return v && graph_[v].producer && blocks_.of(graph_[v].producer) == blocks_.of(node);
  });
  IdRange<ValueId> results = graph_.results(node);
  Bytes received;
  for (ValueId v : results) received += graph_.types().bytes(graph_.type(v));
  return outside && received < BytesOf(graph_, given);
}

Decision BlockDecisions::of(ValueId v) const {
  NodeId node = graph_[v].producer;
  int64_t block = blocks_.of(node);
  if (block == Blocks::kNone) return Decision::kLeave;
  if (policy_.kind == CheckpointPolicy::Kind::kLayers && (block + 1) % policy_.layers != 0)
    return Decision::kLeave;
  bool keep = leaves_block_[v.index()] || selected_[node.index()] || EntersSmaller(node);
  return keep || !CanRecompute(graph_, node) ? Decision::kKeep : Decision::kRecompute;
}

}  // namespace heddle
