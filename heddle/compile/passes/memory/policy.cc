#include "heddle/compile/passes/memory/policy.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

constexpr std::array<std::string_view, 5> kPolicyNames = {"none", "full", "layers:n", "selective",
                                                          "min-cut"};

Result<int64_t> ParseCount(std::string_view digits) {
  int64_t n = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error == std::errc() && end == digits.data() + digits.size() && n >= 1) return n;
  return Error(Diag::kPassOption,
               "`{}` is not a number of blocks; write at least 1, as in `layers:2`", digits);
}

Bytes BytesOf(const Graph& graph, std::span<const ValueId> values) {
  Bytes sum;
  for (ValueId v : values) {
    if (v) sum += graph.types().bytes(graph.type(v));
  }
  return sum;
}

}  // namespace

Result<CheckpointPolicy> CheckpointPolicy::Parse(std::string_view text) {
  size_t comma = text.find(',');
  if (comma != std::string_view::npos) {
    std::string_view head = Trim(text.substr(0, comma));
    size_t colon = std::min(head.find(':'), head.size());
    HEDDLE_TRY(CheckpointPolicy first, Parse(head.substr(0, colon)));
    HEDDLE_TRY(int64_t blocks, ParseCount(head.substr(std::min(colon + 1, head.size()))));
    HEDDLE_TRY(CheckpointPolicy policy, Parse(Trim(text.substr(comma + 1))));
    if (policy.kind == Kind::kLayers || policy.first_blocks > 0)
      return Error(Diag::kPassOption,
                   "`{}` follows `{}`, which already covers all remaining blocks; remove one",
                   Trim(text.substr(comma + 1)), head);
    policy.first = first.kind;
    policy.first_blocks = blocks;
    return policy;
  }
  constexpr std::string_view kEvery = "layers:";
  if (text.starts_with(kEvery)) {
    HEDDLE_TRY(int64_t n, ParseCount(text.substr(kEvery.size())));
    return CheckpointPolicy{.kind = Kind::kLayers, .layers = n};
  }
  auto at = std::ranges::find(kPolicyNames, text);
  if (at == kPolicyNames.end() || *at == "layers:n")
    return Error(Diag::kPassOption, "`{}` is not a policy; choose one of {}{}", text,
                 Join(kPolicyNames, ", "), NearestHint(text, kPolicyNames));
  return CheckpointPolicy{.kind = static_cast<Kind>(at - kPolicyNames.begin())};
}

BlockDecisions::BlockDecisions(const Graph& graph, const CheckpointPolicy& policy)
    : graph_(graph),
      policy_(policy),
      blocks_(graph),
      leaves_block_(graph.value_count()),
      selected_(graph.node_count()) {
  FindBlockOutputs();
  if (policy.has(CheckpointPolicy::Kind::kSelective)) FindSelected();
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

// TorchTitan's choice: every second matrix product of a block, starting with the first; attention;
// reduced or exchanged values; maxima. It also keeps the first sum of the residual stream, but no
// products of experts.
void BlockDecisions::FindSelected() {
  std::vector<int64_t> products(blocks_.count());
  std::vector<bool> has_sum(blocks_.count());
  for (NodeId node : graph_.nodes()) {
    int64_t block = blocks_.of(node);
    if (block == Blocks::kNone || graph_[node].phase != Phase::kForward) continue;
    OpId id = graph_[node].op;
    NodeId launch = LaunchOf(graph_, node);
    std::optional<CollectiveKind> launched;
    if (launch) launched = CollectiveKindOf(graph_[launch].op);
    bool selected = FamilyOf(graph_.op(node)) == OpFamily::attention || id == op::max ||
                    id == op::max_dim || id == op::topk || (launched && CutsInput(*launched));
    if (FamilyOf(graph_.op(node)) == OpFamily::matmul && id != op::_grouped_mm)
      selected = products[block]++ % 2 == 0;
    if (id == op::add_Tensor && blocks_.at_top(node) && !has_sum[block])
      selected = has_sum[block] = true;
    selected_[node.index()] = selected;
  }
}

// Whether the node waits for a reduction, over ranks, of values from outside the block.
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

BlockDecision BlockDecisions::of(ValueId v) const {
  NodeId node = graph_[v].producer;
  int64_t block = blocks_.of(node);
  CheckpointPolicy::Kind kind = policy_.of(block);
  if (block == Blocks::kNone || kind == CheckpointPolicy::Kind::kNone) return BlockDecision::kLeave;
  if (kind == CheckpointPolicy::Kind::kLayers && (block + 1) % policy_.layers != 0)
    return BlockDecision::kLeave;
  bool selected = kind == CheckpointPolicy::Kind::kSelective && selected_[node.index()];
  bool keep = leaves_block_[v.index()] || selected || EntersSmaller(node);
  return keep || !CanRecompute(graph_, node) ? BlockDecision::kKeep : BlockDecision::kRecompute;
}

}  // namespace heddle::compile
