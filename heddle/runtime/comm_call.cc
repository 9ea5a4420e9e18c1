#include "heddle/runtime/comm_call.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

namespace heddle {
namespace {

using op::Number;

// What comes off a network is contiguous, whatever strides the parts had.
at::Tensor Concatenate(const Tensors& parts, int64_t dim) {
  return at::cat(parts, dim).contiguous();
}

at::Tensor Cut(const at::Tensor& tensor, int64_t dim, Part part) {
  return tensor.narrow(dim, part.begin, part.size);
}

bool IsAlone(Number op) {
  return op == Number::comm_wait || op == Number::shard_slice || op == Number::shard_bound ||
         op == Number::mem_offload || op == Number::mem_reload;
}

void ReduceInto(at::Tensor& sum, const at::Tensor& part, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: sum.add_(part); return;
    case ReduceOp::kMax: at::maximum_out(sum, sum, part); return;
    case ReduceOp::kMin: at::minimum_out(sum, sum, part); return;
    case ReduceOp::kProduct: sum.mul_(part); return;
  }
}

}  // namespace

at::Tensor Reduce(std::span<const at::Tensor> parts, ReduceOp op, double scale) {
  auto scaled = [&](const at::Tensor& part) { return scale == 1.0 ? part : at::mul(part, scale); };
  at::Tensor sum = scaled(parts[0]).clone(at::MemoryFormat::Contiguous);
  TORCH_CHECK(sum.scalar_type() == parts[0].scalar_type(), "a scale of ", scale, " for ",
              parts[0].scalar_type(), " elements");
  for (const at::Tensor& part : parts.subspan(1)) {
    // Otherwise a part of size 1 would be stretched.
    TORCH_CHECK(part.sizes() == sum.sizes(), "sizes ", part.sizes(), " and ", sum.sizes(),
                " of one group differ");
    ReduceInto(sum, scaled(part), op);
  }
  if (op == ReduceOp::kAvg) sum.div_(static_cast<int64_t>(parts.size()));
  return sum;
}

bool CommCall::Runs(OpId op) {
  switch (static_cast<Number>(op.index())) {
    case Number::comm_all_gather:
    case Number::comm_all_reduce:
    case Number::comm_all_to_all:
    case Number::comm_reduce_scatter: return true;
    default: return IsAlone(static_cast<Number>(op.index()));
  }
}

CommCall::CommCall(const Mesh& mesh, const Graph& graph, NodeId node, c10::Device device)
    : mesh_(mesh), device_(device), op_(static_cast<Number>(graph[node].op.index())) {
  SymbolTable symbols;
  OpArgs args(graph.op(node), graph.attrs(node), mesh, symbols, {});
  const Schema& schema = graph.op(node).schema;
  auto has = [&](std::string_view name) { return schema.Find(name) != nullptr; };
  if (has("over")) over_ = args.AxesOf("over");
  if (has("dim")) cut_dim_ = cat_dim_ = args.attr("dim");
  if (has("split_dim")) cut_dim_ = args.attr("split_dim");
  if (has("concat_dim")) cat_dim_ = args.attr("concat_dim");
  if (has("op")) reduce_ = std::get<ReduceOp>(args.attr("op"));
  if (has("scale")) scale_ = std::get<double>(args.attr("scale"));
  if (has("size")) size_ = args.Int("size");
  if (has("end")) end_ = args.Bool("end");
  groups_ = Groups(mesh, IsAlone(op_) ? Axes() : over_);
}

void CommCall::Run(std::span<const int64_t> ranks, std::span<const Tensors> operands,
                   std::span<Tensors> results) const {
  for (Tensors& tensors : results) tensors.clear();
  if (op_ == Number::shard_bound) {
    results[0].push_back(Bound(ranks[0]));
    return;
  }
  for (size_t i = 0; i < operands[0].size(); ++i) {
    Tensors parts;
    for (const Tensors& tensors : operands) parts.push_back(tensors[i]);
    Tensors made = RunTensor(ranks, i, parts);
    for (size_t m = 0; m < ranks.size(); ++m) results[m].push_back(std::move(made[m]));
  }
}

Tensors CommCall::RunTensor(std::span<const int64_t> ranks, size_t i, const Tensors& parts) const {
  auto all = [&](at::Tensor tensor) { return Tensors(ranks.size(), std::move(tensor)); };
  switch (op_) {
    case Number::comm_all_gather: return all(Concatenate(parts, EachInt(cat_dim_, i)));
    case Number::comm_all_reduce: return all(Reduce(parts, reduce_, scale_));
    case Number::comm_reduce_scatter:
    case Number::comm_all_to_all: return Exchange(ranks, i, parts);
    case Number::shard_slice: {
      int64_t dim = EachInt(cut_dim_, i);
      Part part = PartAt(parts[0].size(dim), over_, mesh_, ranks[0]);
      return {Cut(parts[0], dim, part).contiguous()};
    }
    case Number::mem_offload: return {parts[0].to(at::kCPU)};
    case Number::mem_reload: return {parts[0].to(device_)};
    case Number::comm_wait: return parts;
    default: HEDDLE_CHECK(false, "not an op that runs on groups of ranks");
  }
}

Tensors CommCall::Exchange(std::span<const int64_t> ranks, size_t i, const Tensors& parts) const {
  int64_t dim = EachInt(cut_dim_, i);
  Tensors results;
  for (int64_t rank : ranks) {
    Tensors cuts;
    for (const at::Tensor& part : parts)
      cuts.push_back(Cut(part, dim, PartAt(part.size(dim), over_, mesh_, rank)));
    results.push_back(op_ == Number::comm_all_to_all ? Concatenate(cuts, EachInt(cat_dim_, i))
                                                     : Reduce(cuts, reduce_, scale_));
  }
  return results;
}

at::Tensor CommCall::Bound(int64_t rank) const {
  Part part = PartAt(size_, over_, mesh_, rank);
  return at::full({}, part.begin + (end_ ? part.size : 0), at::kLong).to(device_);
}

}  // namespace heddle
