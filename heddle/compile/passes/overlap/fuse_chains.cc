// fuse-gathers, fuse-scatters: merges consecutive gathers over different axes into one gather over
// all of them, and scatters likewise.
//  %a! = comm.all_gather(%x, over=[dp])
//   %a  = comm.wait(%a!)                     becomes    %b! = comm.all_gather(%x, over=[tp,dp])
//   %b! = comm.all_gather(%a, over=[tp])                %b  = comm.wait(%b!)
//   %b  = comm.wait(%b!)
//   %b  = comm.wait(%b!)
//
// In the merged list of axes, the last gather's axes are the slowest, and so are the first
// scatter's. Views between the collectives are allowed if they cancel. Heddle's lowering creates no
// such chains, but imported graphs and manual plans do.
#include <algorithm>
#include <optional>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// The strides of a contiguous tensor seen through views. Views cancel if the strides are the
// original ones.
class Layout {
 public:
  explicit Layout(std::vector<Dim> sizes) : sizes_(std::move(sizes)) { steps_ = InRows(sizes_); }

  // Returns false for unsupported views.
  bool Follow(const Graph& graph, NodeId view) {
    const Attrs& attrs = graph.attrs(view);
    OpId op = graph[view].op;
    if (op == op::alias) return true;
    if (op == op::t && sizes_.size() == 2) return Swap(0, 1);
    if (op == op::transpose_int)
      return Swap(std::get<int64_t>(*attrs.Find("dim0")), std::get<int64_t>(*attrs.Find("dim1")));
    if (op == op::permute) return Permute(std::get<std::vector<int64_t>>(*attrs.Find("dims")));
    if (op != op::view || steps_ != InRows(sizes_)) return false;
    TypeId type = graph.type(graph.results(view)[0]);
    sizes_ = graph.types()[type].dims;
    steps_ = InRows(sizes_);
    return true;
  }
  bool IsInRows(const std::vector<Dim>& sizes) const {
    return sizes_ == sizes && steps_ == InRows(sizes);
  }

 private:
  static std::vector<Dim> InRows(const std::vector<Dim>& sizes) {
    std::vector<Dim> steps(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;) steps[i - 1] = steps[i] * std::max<Dim>(1, sizes[i]);
    return steps;
  }
  std::optional<size_t> Wrapped(int64_t dim) const {
    auto rank = static_cast<int64_t>(sizes_.size());
    if (dim < -rank || dim >= rank) return std::nullopt;
    return static_cast<size_t>(dim < 0 ? dim + rank : dim);
  }
  bool Swap(int64_t a, int64_t b) {
    std::optional<size_t> first = Wrapped(a);
    std::optional<size_t> second = Wrapped(b);
    if (!first || !second) return false;
    std::swap(sizes_[*first], sizes_[*second]);
    std::swap(steps_[*first], steps_[*second]);
    return true;
  }
  bool Permute(const std::vector<int64_t>& dims) {
    std::vector<Dim> sizes;
    std::vector<Dim> steps;
    for (int64_t dim : dims) {
      std::optional<size_t> at = Wrapped(dim);
      if (!at) return false;
      sizes.push_back(sizes_[*at]);
      steps.push_back(steps_[*at]);
    }
    sizes_ = std::move(sizes);
    steps_ = std::move(steps);
    return true;
  }

  std::vector<Dim> sizes_;
  std::vector<Dim> steps_;
};

class ChainFuser {
 public:
  ChainFuser(Graph& graph, PassContext& context, OpId op)
      : graph_(graph), context_(context), op_(op), uses_(graph) {}

  Changed Run() {
    Rewriter rewriter(graph_);
    for (NodeId id : graph_.nodes()) {
      if (graph_[id].op == op_ && graph_.operands(id).size() == 1) Fuse(rewriter, id);
    }
    return rewriter.Commit();
  }

 private:
  bool ReadOnce(ValueId v) const { return uses_.of(v).size() == 1 && !IsOutput(v); }
  bool IsOutput(ValueId v) const {
    return std::ranges::any_of(graph_.outputs(), [&](const Output& o) { return o.value == v; });
  }
  void Keep(NodeId last, std::string_view why) {
    context_.AddRemark(graph_, graph_[last].first_result, RemarkKind::kChainKept,
                       "two collectives are not merged: {}", why);
  }

  // The collective that produces the operand of `last`, through views. Adds the views and the wait
  // to `between`.
  NodeId FirstOf(NodeId last, std::vector<NodeId>& between) {
    ValueId v = graph_.operands(last)[0];
    NodeId node = graph_[v].producer;
    while (node && graph_.op(node).effect() == Effect::kView && graph_.operands(node).size() == 1) {
      between.push_back(node);
      v = graph_.operands(node)[0];
      node = graph_[v].producer;
    }
    if (!node || !IsWait(graph_, node) || graph_[node].result_count != 1) return {};
    between.push_back(node);
    NodeId first = graph_[graph_.operands(node)[0]].producer;
    return first && graph_[first].op == op_ && graph_.operands(first).size() == 1 ? first
                                                                                  : NodeId();
  }

  void Fuse(Rewriter& rewriter, NodeId last) {
    std::vector<NodeId> between;
    NodeId first = FirstOf(last, between);
    if (!first) return;
    NodeId wait = between.back();
    const TypeTable& types = graph_.types();
    const std::vector<Dim>& sizes = types[graph_.type(graph_.results(wait)[0])].dims;
    auto uneven = [&](ValueId v) {
      return std::ranges::any_of(types[graph_.type(v)].dims, [](Dim d) { return IsSymbol(d); });
    };
    if (uneven(graph_.results(wait)[0]) || uneven(graph_.operands(first)[0]))
      return Keep(last, "their parts have different sizes");
    for (NodeId node : between) {
      if (!ReadOnce(graph_[node].first_result))
        return Keep(last, "other nodes read values between them");
    }
    Layout layout(sizes);
    for (size_t i = between.size() - 1; i-- > 0;) {
      if (!layout.Follow(graph_, between[i])) return Keep(last, "nodes between them move elements");
    }
    if (!layout.IsInRows(sizes)) return Keep(last, "views between them do not cancel");
    if (Dim0(first) != Dim0(last)) return Keep(last, "they work along different dimensions");
    Attrs attrs = graph_.attrs(last);
    if (op_ == op::comm_reduce_scatter && !SameReduction(first, last))
      return Keep(last, "they reduce differently");
    Axes over = std::get<Axes>(*graph_.attrs(first).Find("over"));
    Axes outer = std::get<Axes>(*attrs.Find("over"));
    if (op_ == op::comm_reduce_scatter) std::swap(over, outer);
    for (AxisId axis : over) {
      if (!outer.Add(axis)) return Keep(last, "they share a mesh axis");
    }
    attrs.Set("over", outer);
    ValueId source = graph_.operands(first)[0];
    rewriter.SetOperands(last, {&source, 1}, graph_.InternAttrs(std::move(attrs)));
    for (NodeId node : between) rewriter.Erase(node);
    rewriter.Erase(first);
    context_.Count("chains");
  }

  int64_t Dim0(NodeId id) const {
    const AttrValue* dim = graph_.attrs(id).Find("dim");
    int64_t at = dim != nullptr ? EachInt(*dim, 0) : 0;
    auto rank = static_cast<int64_t>(graph_.types().rank(graph_.type(graph_.operands(id)[0])));
    return at < 0 ? at + rank : at;
  }
  // Sums of sums, or maxima of maxima. A factor would apply twice.
  bool SameReduction(NodeId a, NodeId b) const {
    const AttrValue* first = graph_.attrs(a).Find("op");
    const AttrValue* second = graph_.attrs(b).Find("op");
    ReduceOp one = first != nullptr ? std::get<ReduceOp>(*first) : ReduceOp::kSum;
    ReduceOp two = second != nullptr ? std::get<ReduceOp>(*second) : ReduceOp::kSum;
    bool scaled = graph_.attrs(a).Find("scale") != nullptr;
    return one == two && !scaled;
  }

  Graph& graph_;
  PassContext& context_;
  OpId op_;
  Uses uses_;
};

Result<Changed> FuseGathers(Graph& graph, PassContext& context) {
  return ChainFuser(graph, context, op::comm_all_gather).Run();
}
Result<Changed> FuseScatters(Graph& graph, PassContext& context) {
  return ChainFuser(graph, context, op::comm_reduce_scatter).Run();
}

constexpr std::string_view kFuseChainsStats[] = {"chains"};

}  // namespace

HEDDLE_DEFINE_PASS(fuse_gathers){
    .name = "fuse-gathers",
    .summary = "Merges consecutive gathers over different axes into one",
    .run = Run<FuseGathers>,
    .any_view = false,
    .needs = View::kLocal,
    .reorders_launches = true,
    .stats = kFuseChainsStats,
};

HEDDLE_DEFINE_PASS(fuse_scatters){
    .name = "fuse-scatters",
    .summary = "Merges consecutive reduce-scatters over different axes into one",
    .run = Run<FuseScatters>,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRounding,
    .reorders_launches = true,
    .stats = kFuseChainsStats,
};

}  // namespace heddle::compile
