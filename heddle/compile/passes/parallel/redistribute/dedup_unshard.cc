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
#include <map>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class Dedup {
 public:
  explicit Dedup(Graph& graph)
      : graph_(graph),
        donations_(graph),
        rewriter_(graph),
        from_param_(graph.value_count(), false) {}

  Result<Changed> Run(PassContext& context) {
    for (const Input& input : graph_.inputs())
      from_param_[input.value.index()] = input.role == InputRole::kParam;
    for (NodeId node : graph_.nodes()) {
      if (!Follows(node)) continue;
      for (ValueId v : graph_.results(node)) from_param_[v.index()] = true;
      if (IsTakenOver(node)) continue;
      // A gather has one wait, so waits of different phases merge.
      Phase phase = graph_[node].op == op::comm_wait ? Phase::kForward : graph_[node].phase;
      std::vector<uint32_t> key{graph_[node].op.index(), graph_[node].attrs.index(),
                                static_cast<uint32_t>(phase), graph_[node].stream};
      for (ValueId v : graph_.operands(node))
        key.push_back(v ? rewriter_.Resolve(v).index() : UINT32_MAX);
      for (ValueId v : graph_.results(node)) {
        key.push_back(graph_.type(v).index());
        key.push_back(graph_[v].placement.index());
      }
      auto [first, added] = first_.try_emplace(std::move(key), node);
      if (added) continue;
      if (graph_.op(node).effect() == Effect::kComm && graph_[node].op != op::comm_wait)
        context.Count("gathers");
      auto kept = graph_.results(first->second).begin();
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
  bool IsTakenOver(NodeId node) const {
    return graph_.op(node).effect() != Effect::kView &&
           std::ranges::any_of(graph_.results(node),
                               [&](ValueId v) { return static_cast<bool>(donations_.taker(v)); });
  }

  Graph& graph_;
  BufferDonations donations_;
  Rewriter rewriter_;
  std::vector<bool> from_param_;
  std::map<std::vector<uint32_t>, NodeId> first_;
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
