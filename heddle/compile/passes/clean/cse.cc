// cse: computes equal values once.
//
//   %a = aten.exp(%x)
//   %b = aten.exp(%x)                     becomes      %a = aten.exp(%x)
//   %c = aten.add.Tensor(%a, %b)                       %c = aten.add.Tensor(%a, %a)
//
// One walk with a hash table. Two nodes are equal if they have the same op, attributes, operands
// (after earlier merges), result types, placements and phase. Phases stay separate, because
// backward recomputes values on purpose. Random ops, unknown ops and collectives are never merged.
// A value whose storage an update takes over is not merged: the other value is still read, or taken
// over itself. Views are merged anyway, because they share one storage. The stronger of two save
// decisions wins.
#include "heddle/compile/manager/pass.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/ir/storage.h"

namespace heddle::compile {
namespace {

class Merger {
 public:
  explicit Merger(Graph& graph) : graph_(graph), donations_(graph), rewriter_(graph) {}

  Result<Changed> Run(PassContext& context) {
    first_.Reserve(graph_.node_count());
    for (NodeId id : graph_.nodes()) {
      if (!MayMerge(id)) continue;
      uint64_t hash = Hash(id);
      uint32_t found = first_.Find(hash, [&](uint32_t n) { return Same(NodeId(n), id); });
      if (found == HashIndex::kNone) {
        first_.Insert(hash, id.index());
        continue;
      }
      IdRange<ValueId> kept = graph_.results(NodeId(found));
      IdRange<ValueId> dropped = graph_.results(id);
      for (size_t i = 0; i < kept.size(); ++i) rewriter_.ReplaceValue(dropped[i], kept[i]);
      rewriter_.Erase(id);
      context.Count("merged");
    }
    return rewriter_.Commit();
  }

 private:
  bool MayMerge(NodeId id) const {
    Effect effect = graph_.op(id).effect();
    if (effect != Effect::kPure) return effect == Effect::kView;
    return std::ranges::none_of(graph_.results(id),
                                [&](ValueId v) { return static_cast<bool>(donations_.taker(v)); });
  }

  uint64_t Hash(NodeId id) const {
    const Node& node = graph_[id];
    uint64_t hash = MixHash(uint64_t{node.op.index()} << 32 | node.attrs.index(),
                            static_cast<uint64_t>(node.phase));
    for (ValueId operand : graph_.operands(id))
      hash = MixHash(hash, rewriter_.Resolve(operand).index());
    return hash;
  }

  bool Same(NodeId a, NodeId b) const {
    const Node& x = graph_[a];
    const Node& y = graph_[b];
    if (x.op != y.op || x.attrs != y.attrs || x.phase != y.phase ||
        x.operand_count != y.operand_count || x.result_count != y.result_count) {
      return false;
    }
    for (uint32_t i = 0; i < x.operand_count; ++i) {
      if (rewriter_.Resolve(graph_.operands(a)[i]) != rewriter_.Resolve(graph_.operands(b)[i]))
        return false;
    }
    for (uint32_t i = 0; i < x.result_count; ++i) {
      const Value& p = graph_[graph_.results(a)[i]];
      const Value& q = graph_[graph_.results(b)[i]];
      if (p.type != q.type || p.placement != q.placement) return false;
    }
    return true;
  }

  Graph& graph_;
  BufferDonations donations_;
  Rewriter rewriter_;
  HashIndex first_;
};

Result<Changed> CommonSubexpressions(Graph& graph, PassContext& context) {
  return Merger(graph).Run(context);
}

constexpr std::string_view kCseStats[] = {"merged"};

}  // namespace

HEDDLE_DEFINE_PASS(cse){
    .name = "cse",
    .summary = "Computes equal values of one phase once",
    .run = Run<CommonSubexpressions>,
    .stats = kCseStats,
};

}  // namespace heddle::compile
