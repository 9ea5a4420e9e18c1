#include "heddle/compile/passes/parallel/lower/row_lookup.h"

#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// Builds the nodes of a lookup in a part of a table.
class Shift {
 public:
  Shift(Graph& graph, Rewriter& rewriter, NodeId node)
      : graph_(graph), inserter_(graph, rewriter), node_(node) {}

  ValueId Add(OpId op, std::string_view name, const std::vector<ValueId>& operands,
              const Attrs& attrs, TypeId type) {
    return inserter_.Add(Inserter::Before(node_), op, name, operands, attrs, type);
  }

  TypeId Like(ValueId v, DType dtype) {
    Type type = graph_.types()[graph_.type(v)];
    type.dtype = dtype;
    return graph_.types().Intern(type);
  }
  // A bound of this rank's part, in the type of the positions.
  ValueId Bound(const Axes& over, int64_t size, bool end, DType dtype) {
    Attrs attrs;
    attrs.Set("size", size);
    attrs.Set("over", over);
    if (end) attrs.Set("end", true);
    Type type = Type::Tensor(DType::kI64, {});
    std::string_view name = end ? "end" : "begin";
    ValueId bound = Add(op::shard_bound, name, {}, attrs, graph_.types().Intern(type));
    if (dtype == type.dtype) return bound;
    Attrs cast;
    cast.Set("dtype", dtype);
    type.dtype = dtype;
    return Add(op::_to_copy, name, {bound}, cast, graph_.types().Intern(type));
  }
  // Flags of the positions outside this rank's part.
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
  // The flags with an additional last dimension of 1, to broadcast over rows.
  ValueId Rows(ValueId flags) {
    Type type = graph_.types()[graph_.type(flags)];
    type.dims.push_back(1);
    Attrs attrs;
    attrs.Set("dim", int64_t{-1});
    return Add(op::unsqueeze, "rows", {flags}, attrs, graph_.types().Intern(type));
  }

 private:
  Graph& graph_;
  Inserter inserter_;
  NodeId node_;
};

}  // namespace

ValueId TableOf(const Graph& graph, NodeId node) {
  uint8_t table = graph.op(node).def->lookup->table;
  return table == RowLookup::kResult ? graph[node].first_result : graph.operands(node)[table];
}

void ShiftLookup(Graph& graph, Rewriter& rewriter, NodeId node, const Axes& over, int64_t size) {
  const RowLookup& lookup = *graph.op(node).def->lookup;
  Shift shift(graph, rewriter, node);
  ValueId index = graph.operands(node)[lookup.index];
  DType dtype = graph.types().dtype(graph.type(index));
  ValueId begin = shift.Bound(over, size, false, dtype);
  ValueId end = shift.Bound(over, size, true, dtype);
  ValueId others = shift.Others(index, begin, end);
  Attrs attrs = graph.attrs(node);
  bool ignored = lookup.out_of_shard == OutOfShardRows::kIgnored;
  int64_t instead = ignored ? std::get<int64_t>(*attrs.Find("ignore_index")) : 0;
  ValueId here = shift.Shifted(index, begin, others, instead);
  if (lookup.out_of_shard == OutOfShardRows::kZeroInResult) {
    // The node itself becomes the one that clears rows, so that its readers stay.
    std::vector<ValueId> operands(graph.operands(node).begin(), graph.operands(node).end());
    operands[lookup.index] = here;
    std::string_view name = graph.op(node).name();
    name.remove_prefix(name.find('.') + 1);
    ValueId found =
        shift.Add(graph[node].op, name, operands, attrs, graph.type(graph[node].first_result));
    std::vector<ValueId> cleared{found, shift.Rows(others)};
    rewriter.SetOp(node, op::masked_fill_Scalar, graph.InternAttrs(Shift::Value(0)));
    rewriter.SetOperands(node, cleared, graph.InternAttrs(Shift::Value(0)));
    return;
  }
  rewriter.SetOperand(node, lookup.index, here);
  if (lookup.out_of_shard == OutOfShardRows::kZeroInOperand) {
    ValueId operand = graph.operands(node)[0];
    ValueId cleared =
        shift.Add(op::masked_fill_Scalar, "masked_fill", {operand, shift.Rows(others)},
                  Shift::Value(0), graph.type(operand));
    rewriter.SetOperand(node, 0, cleared);
  }
  if (!lookup.size_attr.empty()) {
    attrs.Set(lookup.size_attr, graph.types().dims(graph.type(TableOf(graph, node)))[lookup.dim]);
    rewriter.SetAttrs(node, graph.InternAttrs(attrs));
  }
}

}  // namespace heddle::compile
