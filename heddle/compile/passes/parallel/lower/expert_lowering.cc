#include "heddle/compile/passes/parallel/lower/expert_lowering.h"

#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {

bool ExpertLowering::Lowers(OpId op) {
  return op == op::shard_expert_counts || op == op::shard_expert_ends || op == op::shard_dispatch ||
         op == op::shard_combine;
}

Status ExpertLowering::Lower(NodeId node) {
  if (graph_[node].op == op::shard_expert_ends) return LowerEnds(node);
  if (graph_[node].op == op::shard_expert_counts) {
    LowerCounts(node);
  } else {
    LowerExchange(node);
  }
  return Done{};
}

void ExpertLowering::Launch(NodeId node, OpId op, const std::vector<ValueId>& operands,
                            const Attrs& attrs) {
  ValueId to = graph_[node].first_result;
  TypeId element = graph_.type(to);
  ValueId handle = Inserter(graph_, rewriter_)
                       .Add(Inserter::Before(node), op, fmt::format("{}!", graph_.name(to)),
                            operands, attrs, graph_.types().Async({&element, 1}));
  rewriter_.SetOp(node, op::comm_wait, AttrsTable::kEmpty);
  rewriter_.SetOperands(node, {&handle, 1}, AttrsTable::kEmpty);
}

void ExpertLowering::LowerCounts(NodeId node) {
  Attrs attrs;
  attrs.list_sizes = {1};
  attrs.Set("over", *graph_.attrs(node).Find("over"));
  attrs.Set("split_dim", int64_t{0});
  attrs.Set("concat_dim", int64_t{0});
  attrs.Set("why", Why::kExpert);
  Launch(node, op::comm_all_to_all, {graph_.operands(node)[0]}, attrs);
}

// Adds up the rows that all members send for each of this rank's experts, and accumulates them over
// the experts.
Status ExpertLowering::LowerEnds(NodeId node) {
  ValueId received = graph_.operands(node)[0];
  Inserter inserter(graph_, rewriter_);
  auto add = [&](OpId op, std::string_view name, ValueId from, const Attrs& attrs, Dims dims) {
    return inserter.Add(Inserter::Before(node), op, name, {from}, attrs,
                        graph_.types().Intern(Type::Tensor(DType::kI64, std::move(dims))));
  };
  int64_t ranks = mesh_.Size(std::get<Axes>(*graph_.attrs(node).Find("over")));
  int64_t experts = graph_.types().dims(graph_.type(received))[0] / ranks;
  ValueId result = graph_[node].first_result;
  int64_t placed = graph_.types().dims(graph_.type(result))[0];
  if (placed != experts)
    return Error(Diag::kPlacement,
                 "the placement of `%{}` gives a rank {}, but {} that share experts have {} each",
                 graph_.name(result), Counted(placed, "expert"), Counted(ranks, "rank"), experts);
  Attrs shape;
  shape.Set("size", std::vector<int64_t>{ranks, experts});
  ValueId table = add(op::view, "by_rank", received, shape, {ranks, experts});
  Attrs over_ranks;
  over_ranks.Set("dim", std::vector<int64_t>{0});
  ValueId counts = add(op::sum_dim_IntList, "own", table, over_ranks, {experts});
  Attrs along;
  along.Set("dim", int64_t{0});
  ValueId ends = add(op::cumsum, "sums", counts, along, {experts});
  Attrs cast;
  cast.Set("dtype", DType::kI32);
  AttrsId attrs = graph_.InternAttrs(cast);
  rewriter_.SetOp(node, op::_to_copy, attrs);
  rewriter_.SetOperands(node, {&ends, 1}, attrs);
  return Done{};
}

std::string ExpertLowering::SizeName(ValueId received) {
  auto [at, added] = sizes_.try_emplace(received);
  if (!added) return at->second;
  // A name without a symbol or axis.
  size_t number = sizes_.size() - 1;
  do {
    at->second = fmt::format("rows{}", number++);
  } while (graph_.types().symbols().Find(at->second) != nullptr || mesh_.Find(at->second));
  return at->second;
}

void ExpertLowering::LowerExchange(NodeId node) {
  std::vector<ValueId> operands(graph_.operands(node).begin(), graph_.operands(node).end());
  ValueId to = graph_[node].first_result;
  Type type = graph_.types()[graph_.type(to)];
  Attrs attrs;
  attrs.Set("over", *graph_.attrs(node).Find("over"));
  if (graph_[node].op == op::shard_combine) {
    attrs.Set("rows_back", type.dims[0]);
    attrs.Set("why", Why::kExpert);
    return Launch(node, op::comm_combine, operands, attrs);
  }
  attrs.Set("most", type.dims[0]);
  if (exact_) {
    std::string name = SizeName(operands[2]);
    type.dims[0] = graph_.types().symbols().Named(name, type.dims[0]);
    rewriter_.SetType(to, graph_.types().Intern(type));
    counted_.insert(to);
    attrs.Set("size", std::move(name));
  }
  attrs.Set("why", Why::kExpert);
  Launch(node, op::comm_dispatch, operands, attrs);
}

Status ExpertLowering::Follow(NodeId node) {
  auto counted = [&](ValueId v) { return v && counted_.contains(v); };
  if (std::ranges::none_of(graph_.operands(node), counted)) return Done{};
  OpArgs args(graph_.op(node), graph_.attrs(node), mesh_, graph_.types().symbols(),
              OperandTypes(graph_, graph_.operands(node)));
  HEDDLE_TRY(Types types, InferTypes(args));
  size_t r = 0;
  for (ValueId v : graph_.results(node)) {
    TypeId type = graph_.types().Intern(types[r++]);
    if (type == graph_.type(v)) continue;
    rewriter_.SetType(v, type);
    counted_.insert(v);
  }
  return Done{};
}

}  // namespace heddle::compile
