#include "heddle/compile/passes/parallel/propagate/decompose.h"

#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class Writer {
 public:
  explicit Writer(Graph& graph) : graph_(graph), rewriter_(graph), inserter_(graph, rewriter_) {}

  Changed Run(const ModuleBoundaries& boundaries) {
    size_t count = graph_.node_count();
    for (uint32_t n = 0; n < count; ++n) {
      NodeId node{n};
      // A single number cannot be split.
      if (!boundaries.decomposes_log_softmax(graph_[node].scope) ||
          graph_[node].result_count == 0 || graph_.types().rank(TypeOf(node)) == 0)
        continue;
      if (graph_[node].op == op::_log_softmax) Forward(node);
      if (graph_[node].op == op::_log_softmax_backward_data) Backward(node);
    }
    return rewriter_.Commit();
  }

 private:
  // Inserts ops before one node.
  struct Chain {
    Inserter& inserter;
    NodeId node;
    ValueId Add(OpId op, std::string_view name, const std::vector<ValueId>& operands,
                const Attrs& attrs, TypeId type) {
      return inserter.Add(Inserter::Before(node), op, name, operands, attrs, type);
    }
  };

  int64_t DimOf(NodeId node) const {
    int64_t dim = std::get<int64_t>(*graph_.attrs(node).Find("dim"));
    return dim < 0 ? dim + static_cast<int64_t>(graph_.types().rank(TypeOf(node))) : dim;
  }
  TypeId TypeOf(NodeId node) const { return graph_.type(graph_[node].first_result); }

  // The type with dimension `dim` of size 1.
  TypeId RowType(TypeId type, int64_t dim) {
    Type row = graph_.types()[type];
    row.dims[static_cast<size_t>(dim)] = 1;
    return graph_.types().Intern(row);
  }
  static Attrs AlongDim(int64_t dim) {
    Attrs attrs;
    attrs.Set("dim", std::vector<int64_t>{dim});
    attrs.Set("keepdim", true);
    return attrs;
  }

  // x - max - log(sum(exp(x - max)))
  void Forward(NodeId node) {
    TypeId type = TypeOf(node);
    int64_t dim = DimOf(node);
    TypeId row = RowType(type, dim);
    Chain chain{inserter_, node};
    ValueId x = Cast(chain, graph_.operands(node)[0], type);
    ValueId most = chain.Add(op::amax, "amax", {x}, AlongDim(dim), row);
    ValueId shifted = chain.Add(op::sub_Tensor, "sub", {x, most}, {}, type);
    ValueId powers = chain.Add(op::exp, "exp", {shifted}, {}, type);
    ValueId sum = chain.Add(op::sum_dim_IntList, "sum", {powers}, AlongDim(dim), row);
    ValueId log = chain.Add(op::log, "log", {sum}, {}, row);
    Replace(node, chain.Add(op::sub_Tensor, "log_softmax", {shifted, log}, {}, type));
  }

  // g - exp(y) * sum(g)
  void Backward(NodeId node) {
    ValueId grad = graph_.operands(node)[0];
    ValueId output = graph_.operands(node)[1];
    TypeId type = graph_.type(grad);
    int64_t dim = DimOf(node);
    Chain chain{inserter_, node};
    ValueId sum = chain.Add(op::sum_dim_IntList, "sum", {grad}, AlongDim(dim), RowType(type, dim));
    ValueId powers = chain.Add(op::exp, "exp", {output}, {}, graph_.type(output));
    ValueId scaled = chain.Add(op::mul_Tensor, "mul", {powers, sum}, {}, type);
    ValueId out = chain.Add(op::sub_Tensor, "log_softmax_backward", {grad, scaled}, {}, type);
    Replace(node, Cast(chain, out, TypeOf(node)));
  }

  void Replace(NodeId node, ValueId by) {
    rewriter_.ReplaceValue(graph_[node].first_result, by);
    rewriter_.Erase(node);
  }
  ValueId Cast(Chain& chain, ValueId v, TypeId to) {
    if (graph_.type(v) == to) return v;
    Attrs attrs;
    attrs.Set("dtype", graph_.types().dtype(to));
    return chain.Add(op::_to_copy, "to_copy", {v}, attrs, to);
  }

  Graph& graph_;
  Rewriter rewriter_;
  Inserter inserter_;
};

}  // namespace

Changed DecomposeLogSoftmax(Graph& graph, const ModuleBoundaries& boundaries, const Mesh& mesh) {
  if (mesh.ranks() == 1) return Changed::kNo;
  return Writer(graph).Run(boundaries);
}

}  // namespace heddle::compile
