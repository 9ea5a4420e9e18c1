// dedup-unshard: gathers a parameter with several readers once.
//
//   %a = comm.wait(comm.all_gather(%w, why=unshard))
//   ...
//   %b = comm.wait(comm.all_gather(%w, why=unshard))     every use of %b becomes a use of %a
//
// A chain consists of the casts, views, gathers and waits from a parameter on. Of two equal chains
// in one phase, the first stays and gets the stronger save decisions. Phases stay separate, because
// a gather repeated in backward saves memory. A value whose storage an update takes over is not
// merged.
#include <algorithm>
#include <optional>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class Dedup {
 public:
  explicit Dedup(Graph& graph)
      : graph_(graph), rewriter_(graph), from_param_(graph.value_count(), false) {}

  Result<Changed> Run(PassContext& context) {
    for (const Input& input : graph_.inputs())
      from_param_[input.value.index()] = input.role == InputRole::kParam;
    for (NodeId node : graph_.nodes()) {
      if (!Follows(node)) continue;
      for (ValueId v : graph_.results(node)) from_param_[v.index()] = true;
      // A gather has one wait, so waits of different phases merge.
      Phase phase = graph_[node].op == op::comm_wait ? Phase::kForward : graph_[node].phase;
      key_.Clear();
      key_.Add(uint64_t{graph_[node].op.index()} << 32 | graph_[node].attrs.index());
      key_.Add(uint64_t{static_cast<uint32_t>(phase)} << 32 | graph_[node].stream);
      for (ValueId v : graph_.operands(node))
        key_.Add(v ? rewriter_.Resolve(v).index() : UINT32_MAX);
      for (ValueId v : graph_.results(node))
        key_.Add(uint64_t{graph_.type(v).index()} << 32 | graph_[v].placement.index());
      NodeId* first = first_.Find(key_);
      if (first == nullptr) {
        first_.Add(key_, node);
        continue;
      }
      if (IsTakenOver(node)) continue;
      if (IsTakenOver(*first)) {
        *first = node;
        continue;
      }
      if (graph_.op(node).effect() == Effect::kComm && graph_[node].op != op::comm_wait)
        context.Count("gathers");
      auto kept = graph_.results(*first).begin();
      for (ValueId v : graph_.results(node)) {
        rewriter_.ReplaceValue(v, *kept);
        ++kept;
      }
      rewriter_.Erase(node);
    }
    return rewriter_.Commit();
  }

 private:
  // Whether the node is part of a chain that makes a parameter ready for use.
  bool Follows(NodeId node) const {
    if (graph_.operands(node).empty() || graph_[node].phase == Phase::kOptimizer) return false;
    for (ValueId v : graph_.operands(node)) {
      if (!v || !from_param_[v.index()]) return false;
    }
    OpId op = graph_[node].op;
    if (op == op::comm_all_gather || op == op::shard_redistribute)
      return std::get<Why>(*graph_.attrs(node).Find("why")) == Why::kUnshard;
    return op == op::comm_wait || op == op::_to_copy || graph_.op(node).effect() == Effect::kView;
  }

  // A view shares the storage of the parameter, so merging it changes no storage.
  bool IsTakenOver(NodeId node) {
    if (graph_.op(node).effect() == Effect::kView) return false;
    if (!donations_) donations_.emplace(graph_);
    return std::ranges::any_of(graph_.results(node),
                               [&](ValueId v) { return static_cast<bool>(donations_->taker(v)); });
  }

  Graph& graph_;
  Rewriter rewriter_;
  // Made when the first copy is found; most graphs have none.
  std::optional<BufferDonations> donations_;
  std::vector<bool> from_param_;
  CallKey key_;
  CallTable<NodeId> first_;
};

Result<Changed> DedupUnshard(Graph& graph, PassContext& context) {
  return Dedup(graph).Run(context);
}

constexpr std::string_view kDedupUnshardStats[] = {"gathers"};

}  // namespace

HEDDLE_DEFINE_PASS(dedup_unshard){
    .name = "dedup-unshard",
    .summary = "Gathers a parameter with several readers once",
    .run = Run<DedupUnshard>,
    .stats = kDedupUnshardStats,
};

}  // namespace heddle::compile
