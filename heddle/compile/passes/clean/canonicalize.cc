// canonicalize: removes views that do nothing.
//
//   %a = aten.view(%x, size=[4,6])         (%x is f32[4,6])
//   %b = aten.t(%a)
//   %c = aten.t(%b)                        becomes      %d = aten.exp(%x)
//   %d = aten.exp(%c)
//
// One walk. Operands are resolved after earlier replacements, so that whole chains collapse in one
// walk:
//   1. alias, detach and lift_fresh; view, reshape, _unsafe_view and expand to the same shape; a
//      slice of everything; a squeeze without effect; an identity permutation: replaced by their
//      operand;
//   2. a permutation of a permutation (t, transpose, permute) that is the identity: replaced by the
//      inner operand.
// The inner permutation stays for dce, because it may have other readers. A view and its operand
// share a storage, so no read moves after an update. The remaining value takes over save decisions.
#include <numeric>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class Canonicalizer {
 public:
  explicit Canonicalizer(Graph& graph) : graph_(graph), rewriter_(graph) {}

  Result<Changed> Run(PassContext& context) {
    for (NodeId id : graph_.nodes()) {
      if (graph_.op(id).effect() != Effect::kView || graph_[id].result_count != 1) continue;
      ValueId source = Source(id);
      if (!source) continue;
      rewriter_.ReplaceValue(graph_[id].first_result, source);
      rewriter_.Erase(id);
      context.Count("views");
    }
    return rewriter_.Commit();
  }

 private:
  // The value that a view equals, or none.
  ValueId Source(NodeId id) const {
    ValueId operand = rewriter_.Resolve(graph_.operands(id)[0]);
    if (SamePlace(operand, graph_[id].first_result) && IsIdentity(id)) return operand;
    NodeId inner = graph_[operand].producer;
    if (!inner || !IsPermutation(id) || !IsPermutation(inner)) return ValueId();
    std::vector<size_t> first = Order(inner);
    std::vector<size_t> second = Order(id);
    for (size_t d = 0; d < first.size(); ++d) {
      if (first[second[d]] != d) return ValueId();
    }
    ValueId origin = rewriter_.Resolve(graph_.operands(inner)[0]);
    return SamePlace(origin, graph_[id].first_result) ? origin : ValueId();
  }

  // Whether the values have equal types and placements, so that only the name differs.
  bool SamePlace(ValueId a, ValueId b) const {
    return graph_[a].type == graph_[b].type && graph_[a].placement == graph_[b].placement;
  }

  bool IsIdentity(NodeId id) const {
    OpId op = graph_[id].op;
    if (op == op::alias || op == op::detach || op == op::lift_fresh) return true;
    // With an unchanged type, these ops move no elements.
    if (op == op::view || op == op::reshape || op == op::_unsafe_view || op == op::expand ||
        op == op::slice_Tensor || op == op::squeeze || op == op::squeeze_dim ||
        op == op::squeeze_dims) {
      return true;
    }
    if (!IsPermutation(id)) return false;
    std::vector<size_t> order = Order(id);
    for (size_t d = 0; d < order.size(); ++d) {
      if (order[d] != d) return false;
    }
    return true;
  }

  bool IsPermutation(NodeId id) const {
    OpId op = graph_[id].op;
    return op == op::t || op == op::transpose_int || op == op::permute;
  }

  // The operand dimension of each result dimension. The module is valid, so attributes are in
  // range.
  std::vector<size_t> Order(NodeId id) const {
    size_t rank = graph_.types().rank(graph_.type(graph_[id].first_result));
    auto wrap = [&](int64_t dim) {
      return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
    };
    auto attr = [&](std::string_view name) { return *graph_.attrs(id).Find(name); };
    std::vector<size_t> order(rank);
    std::iota(order.begin(), order.end(), size_t{0});
    if (rank < 2) return order;
    if (graph_[id].op == op::t) {
      std::swap(order[0], order[1]);
    } else if (graph_[id].op == op::transpose_int) {
      std::swap(order[wrap(std::get<int64_t>(attr("dim0")))],
                order[wrap(std::get<int64_t>(attr("dim1")))]);
    } else {
      AttrValue dims = attr("dims");
      for (size_t d = 0; d < rank; ++d) order[d] = wrap(std::get<std::vector<int64_t>>(dims)[d]);
    }
    return order;
  }

  Graph& graph_;
  Rewriter rewriter_;
};

Result<Changed> Canonicalize(Graph& graph, PassContext& context) {
  return Canonicalizer(graph).Run(context);
}

constexpr std::string_view kCanonicalizeStats[] = {"views"};

}  // namespace

HEDDLE_DEFINE_PASS(canonicalize){
    .name = "canonicalize",
    .summary = "Removes views that do nothing, and pairs of permutations that undo each other",
    .run = Run<Canonicalize>,
    .stats = kCanonicalizeStats,
};

}  // namespace heddle::compile
