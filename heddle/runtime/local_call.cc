#include "heddle/runtime/local_call.h"

#include <ATen/ops/full.h>

namespace heddle {
namespace {

// A copy, also where host and device are the same memory.
at::Tensor CopyTo(const at::Tensor& tensor, c10::Device device) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

bool LocalCall::Runs(OpId op) {
  return op == op::shard_slice || op == op::shard_bound || op == op::mem_offload ||
         op == op::mem_reload;
}

LocalCall::LocalCall(const Mesh& mesh, const Graph& graph, NodeId node, c10::Device device)
    : mesh_(mesh), device_(device), op_(graph[node].op) {
  SymbolTable scratch;
  OpArgs args(graph.op(node), graph.attrs(node), mesh, scratch, {});
  if (op_ == op::shard_slice) dim_ = args.Int("dim");
  if (op_ == op::shard_slice || op_ == op::shard_bound) over_ = args.AxesOf("over");
  if (op_ == op::shard_bound) {
    size_ = args.Int("size");
    end_ = args.Bool("end");
  }
}

void LocalCall::Run(int64_t rank, std::span<const at::Tensor* const> operands,
                    Tensors& results) const {
  results.clear();
  if (op_ == op::shard_bound) {
    Part part = PartAt(size_, over_, mesh_, rank);
    results.push_back(at::full({}, part.begin + (end_ ? part.size : 0), at::kLong).to(device_));
  } else if (op_ == op::shard_slice) {
    Part part = PartAt(operands[0]->size(dim_), over_, mesh_, rank);
    results.push_back(
        operands[0]->narrow(dim_, part.begin, part.size).clone(at::MemoryFormat::Contiguous));
  } else {
    results.push_back(CopyTo(*operands[0], op_ == op::mem_offload ? c10::kCPU : device_));
  }
}

}  // namespace heddle
