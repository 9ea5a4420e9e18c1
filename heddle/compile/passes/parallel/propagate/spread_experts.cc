#include "heddle/compile/passes/parallel/propagate/spread_experts.h"

#include <algorithm>

#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class Spreader {
 public:
  Spreader(Graph& graph, const ModuleBoundaries& boundaries, const Mesh& mesh)
      : graph_(graph),
        boundaries_(boundaries),
        mesh_(mesh),
        rewriter_(graph),
        inserter_(graph, rewriter_) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

 private:
  // The products of one mixture. They share the ends of their groups.
  struct Mixture {
    Axes over;
    int64_t times = 1;
    ValueId sent;
    ValueId received;
    // The ends of the groups of a rank's experts.
    ValueId ends;
  };
  // A value whose rows, along dimension `dim`, are on the ranks of their experts.
  struct Spread {
    const Mixture* mixture = nullptr;
    size_t dim = 0;
  };

  Status Walk() {
    size_t count = graph_.node_count();
    for (uint32_t n = 0; n < count; ++n) {
      NodeId node{n};
      const PlanModule* module = boundaries_.experts(graph_[node].scope);
      bool product = module != nullptr && graph_[node].op == op::_grouped_mm &&
                     mesh_.Size(module->experts) > 1 && graph_.operands(node)[2];
      if (product) {
        HEDDLE_RETURN_IF_ERROR(Product(node, *module));
      } else {
        HEDDLE_RETURN_IF_ERROR(Follow(node));
      }
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      ValueId v = graph_.outputs()[i].value;
      if (!spread_.contains(v)) continue;
      HEDDLE_TRY(ValueId back, Combined(v));
      rewriter_.SetOutput(i, back);
    }
    return Done{};
  }

  std::span<const Dim> DimsOf(ValueId v) const { return graph_.types().dims(graph_.type(v)); }
  template <typename... Args>
  Failure Fail(NodeId node, fmt::format_string<Args...> format, Args&&... args) const {
    return Error(Diag::kPlan, "%{} @{}: {}", graph_.name(graph_[node].first_result),
                 graph_.scope(node), fmt::format(format, std::forward<Args>(args)...));
  }

  // --- Products

  Status Product(NodeId node, const PlanModule& module) {
    HEDDLE_TRY(const Mixture* mixture, MixtureOf(node, module));
    size_t a = DimsOf(graph_.operands(node)[0]).size();
    size_t b = DimsOf(graph_.operands(node)[1]).size();
    if (a == 3) return Fail(node, "experts cannot be shared if their weights are the left operand");
    // Rows are dimension 0 of the left operand and of the result. In a sum over rows, they are the
    // last dimension of the left operand and the first of the right.
    HEDDLE_RETURN_IF_ERROR(Send(node, 0, {mixture, b == 3 ? size_t{0} : size_t{1}}));
    if (b == 2) HEDDLE_RETURN_IF_ERROR(Send(node, 1, {mixture, 0}));
    rewriter_.SetOperand(node, 2, mixture->ends);
    if (b == 3) Widen(graph_[node].first_result, {mixture, 0});
    return Done{};
  }

  Result<const Mixture*> MixtureOf(NodeId node, const PlanModule& module) {
    ValueId ends = graph_.operands(node)[2];
    auto [at, added] = mixtures_.try_emplace(ends);
    if (!added) return &at->second;
    Mixture& mixture = at->second;
    NodeId cast = graph_[ends].producer;
    NodeId sum =
        cast && graph_[cast].op == op::_to_copy ? graph_[graph_.operands(cast)[0]].producer : cast;
    if (!sum || graph_[sum].op != op::cumsum)
      return Fail(node, "%{}, the ends of its groups, is not a cumulative count of rows",
                  graph_.name(ends));
    ValueId weights = graph_.operands(node)[1];
    int64_t ranks = mesh_.Size(module.experts);
    int64_t experts = DimsOf(ends)[0];
    if (DimsOf(weights).size() != 3)
      return Fail(node, "the first product of a mixture must read the weights of its experts");
    if (experts % ranks != 0)
      return Fail(node, "{} experts cannot be divided evenly among the {} ranks of [{}]", experts,
                  ranks, Format(mesh_, module.experts));
    mixture.over = module.experts;
    mixture.times = module.expert_times == 0 ? ranks : std::min(ranks, module.expert_times);
    mixture.sent = Counts(graph_.operands(sum)[0]);
    HEDDLE_RETURN_IF_ERROR(CheckRows(node, module));
    Attrs attrs;
    attrs.Set("over", mixture.over);
    mixture.received = inserter_.Add(inserter_.After(mixture.sent), op::shard_expert_counts,
                                     "received", {mixture.sent}, attrs, graph_.type(mixture.sent));
    mixture.ends = inserter_.Add(Inserter::Before(node), op::shard_expert_ends, "ends",
                                 {mixture.received, weights}, attrs, graph_.type(ends));
    return &mixture;
  }

  // Counts as integers: `aten.histc` on a CPU counts in the type of its input.
  ValueId Counts(ValueId counts) {
    Type type = graph_.types()[graph_.type(counts)];
    if (type.dtype == DType::kI64) return counts;
    type.dtype = DType::kI64;
    Attrs attrs;
    attrs.Set("dtype", DType::kI64);
    return inserter_.Add(inserter_.After(counts), op::_to_copy, "counts", {counts}, attrs,
                         graph_.types().Intern(type));
  }

  // All ranks have the same number of rows.
  Status CheckRows(NodeId node, const PlanModule& module) const {
    Dim rows = DimsOf(graph_.operands(node)[0])[0];
    if (!IsSymbol(rows) && rows % mesh_.Size(module.local) == 0) return Done{};
    return Fail(node, "its rows cannot be divided evenly among the {} ranks of [{}]",
                mesh_.Size(module.local), Format(mesh_, module.local));
  }

  // --- Moving rows

  // Moves the rows of operand `i` to the ranks of their experts.
  Status Send(NodeId node, size_t i, const Spread& want) {
    ValueId v = graph_.operands(node)[i];
    auto known = spread_.find(v);
    if (known == spread_.end()) {
      HEDDLE_TRY(ValueId sent, Dispatched(v, want, node));
      rewriter_.SetOperand(node, i, sent);
      return Done{};
    }
    if (known->second.mixture == want.mixture && known->second.dim == want.dim) return Done{};
    return Fail(node, "operand {} has rows of another mixture", i);
  }

  Result<ValueId> Dispatched(ValueId v, const Spread& want, NodeId node) {
    auto known = dispatched_.find({v, want.mixture, want.dim});
    if (known != dispatched_.end()) return known->second;
    ValueId out;
    if (want.dim == 0) {
      out = inserter_.Add(Inserter::Before(node), op::shard_dispatch, "dispatch",
                          {v, want.mixture->sent, want.mixture->received}, AttrsOf(*want.mixture),
                          TypeWith(v, 0, DimsOf(v)[0] * want.mixture->times));
    } else {
      // Columns are the rows of a transposed value.
      NodeId producer = graph_[v].producer;
      if (!producer || !Transposes(producer))
        return Fail(node, "%{} has rows for experts as its columns, but is not a transposed matrix",
                    graph_.name(v));
      ValueId rows = graph_.operands(producer)[0];
      if (!spread_.contains(rows)) {
        HEDDLE_TRY(rows, Dispatched(rows, {want.mixture, 0}, node));
      }
      out = inserter_.Add(Inserter::Before(node), graph_[producer].op, graph_.name(v), {rows},
                          graph_.attrs(producer), TypeWith(v, 1, DimsOf(rows)[0]));
    }
    spread_.emplace(out, want);
    return dispatched_[{v, want.mixture, want.dim}] = out;
  }

  // Returns `v`, whose rows are on the ranks of their experts, to its original rows.
  Result<ValueId> Combined(ValueId v) {
    auto [known, added] = combined_.try_emplace(v);
    if (!added) return known->second;
    Spread at = spread_.at(v);
    if (at.dim != 0)
      return Fail(graph_[v].producer,
                  "its columns are on the ranks of their experts and cannot be combined");
    known->second = inserter_.Add(inserter_.After(v), op::shard_combine, "combine",
                                  {v, at.mixture->sent, at.mixture->received}, AttrsOf(*at.mixture),
                                  TypeWith(v, 0, DimsOf(v)[0] / at.mixture->times));
    return known->second;
  }

  static Attrs AttrsOf(const Mixture& mixture) {
    Attrs attrs;
    attrs.Set("over", mixture.over);
    attrs.Set("times", mixture.times);
    return attrs;
  }

  TypeId TypeWith(ValueId v, size_t dim, Dim size) {
    Type type = graph_.types()[graph_.type(v)];
    type.dims[dim] = size;
    return graph_.types().Intern(type);
  }

  // --- Between products

  void Widen(ValueId v, const Spread& spread) {
    rewriter_.SetType(v, TypeWith(v, spread.dim, DimsOf(v)[spread.dim] * spread.mixture->times));
    spread_.emplace(v, spread);
  }

  bool Transposes(NodeId node) const {
    OpId op = graph_[node].op;
    return (op == op::t || op == op::transpose_int) && graph_.operands(node).size() == 1 &&
           DimsOf(graph_.operands(node)[0]).size() == 2 && !SameDims(node);
  }
  // Whether the node is a transposition of equal dimensions.
  bool SameDims(NodeId node) const {
    if (graph_[node].op != op::transpose_int) return false;
    const Attrs& attrs = graph_.attrs(node);
    auto dim = [&](std::string_view name) {
      int64_t given = std::get<int64_t>(*attrs.Find(name));
      return given < 0 ? given + 2 : given;
    };
    return dim("dim0") == dim("dim1");
  }

  // Whether each row of the result depends on the same row of every operand only. `dims` are the
  // original dimensions of the moved operand.
  bool RowByRow(NodeId node, std::span<const Dim> dims) const {
    OpId op = graph_[node].op;
    if (!IsPointwise(graph_.op(node)) && op != op::_to_copy && op != op::clone) return false;
    if (graph_[node].result_count != 1 || !graph_.op(node).def->shape_attr.empty()) return false;
    if (!std::ranges::equal(DimsOf(graph_[node].first_result), dims)) return false;
    return std::ranges::all_of(graph_.operands(node), [&](ValueId v) {
      return !v || spread_.contains(v) || DimsOf(v).empty() || std::ranges::equal(DimsOf(v), dims);
    });
  }

  // Whether the node splits each row, or joins parts of rows.
  bool CutsRows(NodeId node, std::span<const Dim> dims) const {
    OpId op = graph_[node].op;
    if (op != op::split_Tensor && op != op::split_with_sizes && op != op::slice_Tensor &&
        op != op::cat)
      return false;
    const AttrValue* given = graph_.attrs(node).Find("dim");
    int64_t dim = given == nullptr ? 0 : std::get<int64_t>(*given);
    if (dim == 0 || dim == -static_cast<int64_t>(dims.size())) return false;
    return std::ranges::all_of(graph_.operands(node), [&](ValueId v) {
      return spread_.contains(v) || (DimsOf(v).size() == dims.size() && DimsOf(v)[0] == dims[0]);
    });
  }

  // A reader of moved rows works on the ranks of the experts if it works row by row. Otherwise it
  // reads the combined rows.
  Status Follow(NodeId node) {
    Spread found;
    Dims dims;
    for (ValueId v : graph_.operands(node)) {
      auto at = v ? spread_.find(v) : spread_.end();
      if (at == spread_.end()) continue;
      found = at->second;
      dims.assign(DimsOf(v).begin(), DimsOf(v).end());
      dims[found.dim] /= found.mixture->times;
    }
    if (found.mixture == nullptr) return Done{};
    if (Transposes(node)) {
      Widen(graph_[node].first_result, {found.mixture, 1 - found.dim});
      return Done{};
    }
    bool stays = found.dim == 0 && (RowByRow(node, dims) || CutsRows(node, dims));
    for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
      ValueId v = graph_.operands(node)[i];
      if (!v || (stays && DimsOf(v).empty())) continue;
      if (stays) {
        HEDDLE_RETURN_IF_ERROR(Send(node, i, found));
      } else if (spread_.contains(v)) {
        HEDDLE_TRY(ValueId back, Combined(v));
        rewriter_.SetOperand(node, i, back);
      }
    }
    if (!stays) return Done{};
    for (ValueId result : graph_.results(node)) Widen(result, found);
    return Done{};
  }

  Graph& graph_;
  const ModuleBoundaries& boundaries_;
  const Mesh& mesh_;
  Rewriter rewriter_;
  Inserter inserter_;
  // Keyed by the captured ends of their groups.
  std::map<ValueId, Mixture> mixtures_;
  std::map<ValueId, Spread> spread_;
  std::map<std::tuple<ValueId, const Mixture*, size_t>, ValueId> dispatched_;
  std::map<ValueId, ValueId> combined_;
};

}  // namespace

Result<Changed> SpreadExperts(Graph& graph, const ModuleBoundaries& boundaries, const Mesh& mesh) {
  return Spreader(graph, boundaries, mesh).Run();
}

}  // namespace heddle::compile
