#include "heddle/passes/parallel/masked.h"

#include "heddle/ops/ops.h"
#include "heddle/passes/parallel/inserter.h"

namespace heddle {
namespace {

bool IsLoss(OpId op) { return op == op::nll_loss_forward || op == op::nll_loss_backward; }

// The pieces of a lookup in a part of a table.
class Shift : public NodeInserter {
 public:
  Shift(Graph& graph, Rewriter& rewriter, NodeId node)
      : NodeInserter(graph, rewriter, node), graph_(graph) {}

  TypeId Like(ValueId v, DType dtype) {
    Type type = graph_.types()[graph_.type(v)];
    type.dtype = dtype;
    return graph_.types().Intern(type);
  }
  ValueId Bound(const Axes& over, int64_t size, bool end) {
    Attrs attrs;
    attrs.Set("size", size);
    attrs.Set("over", over);
    if (end) attrs.Set("end", true);
    return Add(op::shard_bound, end ? "end" : "begin", {}, attrs,
               graph_.types().Intern(Type::Tensor(DType::kI64, {})));
  }
  // Which positions are not in this rank's part.
  ValueId Others(ValueId index, ValueId begin, ValueId end) {
    TypeId flags = Like(index, DType::kBool);
    ValueId below = Add(op::lt_Tensor, "below", {index, begin}, {}, flags);
    ValueId above = Add(op::ge_Tensor, "above", {index, end}, {}, flags);
    return Add(op::bitwise_or_Tensor, "others", {below, above}, {}, flags);
  }
  ValueId Shifted(ValueId index, ValueId begin, ValueId others, int64_t instead) {
    ValueId shifted = Add(op::sub_Tensor, "shifted", {index, begin}, {}, graph_.type(index));
    return Add(op::masked_fill_Scalar, "here", {shifted, others}, Value(instead),
               graph_.type(index));
  }
  static Attrs Value(int64_t value) {
    Attrs attrs;
    attrs.Set("value", value);
    return attrs;
  }
  // The flags with a last dimension of 1, to be stretched over rows.
  ValueId Rows(ValueId flags) {
    Type type = graph_.types()[graph_.type(flags)];
    type.dims.push_back(1);
    Attrs attrs;
    attrs.Set("dim", int64_t{-1});
    return Add(op::unsqueeze, "rows", {flags}, attrs, graph_.types().Intern(type));
  }

 private:
  Graph& graph_;
};

}  // namespace

ValueId MaskedTable(const Graph& graph, NodeId node) {
  if (graph[node].op == op::embedding_dense_backward) return graph[node].first_result;
  return graph.operands(node)[graph[node].op == op::nll_loss_backward ? 1 : 0];
}

Axes MaskedAxes(const Graph& graph, NodeId node, const std::vector<const Placement*>& operands,
                const Placement& result) {
  OpId op = graph[node].op;
  if (op == op::embedding) return operands[0]->split(0);
  if (op == op::embedding_dense_backward) return result.split(0);
  if (op == op::nll_loss_forward) return operands[0]->split(1);
  if (op == op::nll_loss_backward) return operands[1]->split(1);
  return {};
}

void ShiftLookup(Graph& graph, Rewriter& rewriter, NodeId node, const Axes& over,
                 const std::vector<int64_t>& table) {
  Shift shift(graph, rewriter, node);
  OpId op = graph[node].op;
  size_t index_at = op == op::nll_loss_backward ? 2 : 1;
  ValueId index = graph.operands(node)[index_at];
  int64_t size = IsLoss(op) ? table[1] : table[0];
  ValueId begin = shift.Bound(over, size, false);
  ValueId end = shift.Bound(over, size, true);
  ValueId others = shift.Others(index, begin, end);
  const Attrs attrs = graph.attrs(node);
  int64_t instead = IsLoss(op) ? std::get<int64_t>(*attrs.Find("ignore_index")) : 0;
  ValueId here = shift.Shifted(index, begin, others, instead);
  if (op == op::embedding) {
    // The node itself becomes the one that clears rows, so that its readers find it.
    ValueId result = graph[node].first_result;
    ValueId found =
        shift.Add(op, "embedding", {graph.operands(node)[0], here}, attrs, graph.type(result));
    std::vector<ValueId> operands{found, shift.Rows(others)};
    rewriter.SetOp(node, op::masked_fill_Scalar, graph.InternAttrs(Shift::Value(0)));
    rewriter.SetOperands(node, operands, graph.InternAttrs(Shift::Value(0)));
    return;
  }
  rewriter.SetOperand(node, index_at, here);
  if (IsLoss(op)) return;
  ValueId rows = shift.Rows(others);
  ValueId grad = graph.operands(node)[0];
  rewriter.SetOperand(node, 0,
                      shift.Add(op::masked_fill_Scalar, "masked_fill", {grad, rows},
                                Shift::Value(0), graph.type(grad)));
  Attrs local = attrs;
  local.Set("num_weights", graph.types().dims(graph.type(graph[node].first_result))[0]);
  rewriter.SetAttrs(node, graph.InternAttrs(local));
}

}  // namespace heddle
