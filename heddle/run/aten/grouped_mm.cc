#include "heddle/run/aten/grouped_mm.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/ops/ops.h"

namespace heddle::run {

at::Tensor GroupedMm(const at::Tensor& a, const at::Tensor& b,
                     const std::optional<at::Tensor>& offs) {
  if (a.dim() == 3 && b.dim() == 3) return at::bmm(a, b);
  TORCH_CHECK(offs.has_value(), "a matrix that is split into groups needs `offs`");
  at::Tensor ends = offs->to(at::kCPU, at::kLong);
  int64_t groups = ends.numel();
  int64_t m = a.size(-2);
  int64_t n = b.size(-1);
  bool inner = a.dim() == 2 && b.dim() == 2;
  at::Tensor out = inner ? at::zeros({groups, m, n}, a.options()) : at::zeros({m, n}, a.options());
  int64_t begin = 0;
  for (int64_t g = 0; g < groups; ++g) {
    int64_t end = ends[g].item<int64_t>();
    auto cut = [&](const at::Tensor& t, int64_t dim) { return t.narrow(dim, begin, end - begin); };
    at::Tensor to = inner ? out[g] : cut(out, a.dim() == 2 ? 0 : 1);
    at::Tensor lhs = a.dim() == 3 ? a[g] : cut(a, inner ? 1 : 0);
    at::Tensor rhs = b.dim() == 3 ? b[g] : cut(b, inner ? 0 : 1);
    at::mm_out(to, lhs, rhs);
    begin = end;
  }
  return out;
}

namespace {

void RunGroupedMm(const c10::OperatorHandle&, torch::jit::Stack& stack) {
  // Arguments: self, mat2, offs, bias, out_dtype.
  TORCH_CHECK(stack[3].isNone(), "a grouped product of f64 takes no bias");
  TORCH_CHECK(stack[4].isNone() || stack[4].toScalarType() == at::kDouble,
              "a grouped product of f64 is f64");
  at::Tensor out =
      GroupedMm(stack[0].toTensor(), stack[1].toTensor(), stack[2].toOptional<at::Tensor>());
  stack.clear();
  stack.emplace_back(std::move(out));
}

}  // namespace

OwnKernel GroupedMmKernel(const Graph& graph, NodeId node) {
  bool is_f64 = graph[node].op == op::_grouped_mm &&
                graph.types().dtype(graph.type(graph.operands(node)[0])) == DType::kF64;
  return is_f64 ? RunGroupedMm : nullptr;
}

}  // namespace heddle::run
