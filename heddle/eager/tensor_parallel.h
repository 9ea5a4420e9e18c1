// Eager tensor parallelism for Llama 3, with FSDP2, DDP or HSDP around it, without a graph.
//
// Ranks of a mesh [replicate, shard, tensor]. Ranks that share a part of the batch are threads, which meet at collectives
// (meeting.h). Linear layers are column-parallel (wq, wk, wv, w1, w3, output: rows of the weight are split) or row-parallel (wo, w2:
// columns are); the embedding is split by vocabulary. Between blocks activations are split by position, if sequence parallelism is on,
// and norms work on what a rank has. The rest is ShardedState's, for each slice of the weights.
#pragma once

#include <span>
#include <vector>

#include "heddle/eager/data_parallel.h"
#include "heddle/eager/sharded_state.h"

namespace heddle {

struct TensorParallelOptions {
  DataParallelOptions data;
  // Rank = (replica * shard + part) * tensor + slice.
  int64_t tensor = 1;
  bool sequence_parallel = true;
  // The loss works on logits that are split by vocabulary; otherwise they are gathered.
  bool split_loss = true;
};

class EagerTensorParallel {
 public:
  // A llama3; it must outlive this. Parameters are given whole, in registration order.
  EagerTensorParallel(const Model& model, std::span<const at::Tensor> params,
                      const TensorParallelOptions& options);

  int64_t ranks() const { return batch_ranks() * options_.tensor; }
  EagerStep Step(std::span<const at::Tensor> inputs, double lr, int64_t step);

  const at::Tensor& param(int64_t rank, size_t i) const { return Of(rank).param(At(rank), i); }
  const at::Tensor& exp_avg(int64_t rank, size_t i) const { return Of(rank).exp_avg(At(rank), i); }
  const at::Tensor& exp_avg_sq(int64_t rank, size_t i) const {
    return Of(rank).exp_avg_sq(At(rank), i);
  }
  const at::Tensor& grad(int64_t rank, size_t i) const { return Of(rank).grad(At(rank), i); }

 private:
  int64_t batch_ranks() const { return options_.data.replicate * options_.data.shard; }
  const ShardedState& Of(int64_t rank) const {
    return slices_[static_cast<size_t>(rank % options_.tensor)];
  }
  int64_t At(int64_t rank) const { return rank / options_.tensor; }
  at::Tensor ClipNorm(int64_t replica) const;

  const Model& model_;
  TensorParallelOptions options_;
  // One for each slice of the weights, of all ranks that have it.
  std::vector<ShardedState> slices_;
  // Parameters that are split over tensor-parallel ranks, and that are whole on each.
  std::vector<size_t> split_;
  std::vector<size_t> whole_;
};

}  // namespace heddle
