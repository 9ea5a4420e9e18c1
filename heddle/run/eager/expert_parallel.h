// Eager expert parallelism with FSDP2 or HSDP, context and tensor parallelism, without a graph. For
// a model without shared experts this is context and tensor parallelism only.
//
// The mesh is [replicate, shard, tensor], where `shard` includes context parallelism. The ranks of
// a replica are threads that exchange tensors in collectives (thread_group.h). Every `expert`
// consecutive ranks share the experts: each has an equal part of every stack. If tensor-parallel
// ranks split each expert, such a group has each of their slices once. The ranks of a replica that
// have the same part of a stack shard it among themselves. The ranks with the same tensor-parallel
// slice shard all other parameters.
#pragma once

#include <span>
#include <vector>

#include "heddle/run/eager/context_attention.h"
#include "heddle/run/eager/data_parallel.h"
#include "heddle/run/eager/sharded_state.h"

namespace heddle::run {

struct TensorParallelOptions {
  // `shard` counts the ranks of context parallelism.
  DataParallelOptions data;
  // Rank = (replica * shard + part) * tensor + slice.
  int64_t tensor = 1;
  // Number of consecutive parts of `shard` that have the same sequences, each with an equal part of
  // the positions.
  int64_t context = 1;
  ContextSplit context_split = {};
  bool sequence_parallel = true;
  // Computes the loss on logits that are split by vocabulary; otherwise gathers them.
  bool split_loss = true;
};

struct ExpertParallelOptions {
  TensorParallelOptions tensor;
  // Ranks that share the experts. Divides shard * tensor / expert_tensor, and is a multiple of
  // tensor / expert_tensor.
  int64_t expert = 1;
  // Tensor-parallel ranks that split each expert: 1, or all of them.
  int64_t expert_tensor = 1;
};

class EagerExpertParallel {
 public:
  // `params` are whole, in registration order. `model` must outlive this object.
  EagerExpertParallel(const Model& model, std::span<const at::Tensor> params,
                      const ExpertParallelOptions& options);

  int64_t ranks() const { return options_.tensor.data.replicate * replica_ranks(); }
  EagerStep Step(std::span<const at::Tensor> inputs, double lr, int64_t step);

  const at::Tensor& param(int64_t rank, size_t i) const {
    return Of(rank, i).param(At(rank, i), place_[i]);
  }
  const at::Tensor& exp_avg(int64_t rank, size_t i) const {
    return Of(rank, i).exp_avg(At(rank, i), place_[i]);
  }
  const at::Tensor& exp_avg_sq(int64_t rank, size_t i) const {
    return Of(rank, i).exp_avg_sq(At(rank, i), place_[i]);
  }
  const at::Tensor& momentum_buffer(int64_t rank, size_t i) const {
    return Of(rank, i).momentum_buffer(At(rank, i), place_[i]);
  }
  const at::Tensor& grad(int64_t rank, size_t i) const {
    return Of(rank, i).grad(At(rank, i), place_[i]);
  }

 private:
  // Gradients by slice (or by piece of the stacks), then by rank among the ranks with the same one.
  using Grads = std::vector<std::vector<std::vector<at::Tensor>>>;
  struct StepParts {
    Grads dense;
    Grads stacks;
    // By micro-batch and rank.
    std::vector<std::vector<at::Tensor>> losses;
    // By rank.
    std::vector<std::vector<BufferChange>> changes;
  };

  int64_t replica_ranks() const { return options_.tensor.data.shard * options_.tensor.tensor; }
  bool own_tokens() const { return options_.expert_tensor == 1; }
  // Number of pieces of a stack, and number of ranks of a replica with the same piece.
  int64_t pieces() const { return options_.expert * options_.expert_tensor; }
  int64_t copies() const { return replica_ranks() / pieces(); }
  int64_t slice(int64_t rank) const { return rank % options_.tensor.tensor; }
  int64_t expert_rank(int64_t rank) const {
    return rank / options_.expert_tensor % options_.expert;
  }
  int64_t piece(int64_t rank) const { return rank % pieces(); }
  // Index of a rank among the ranks with the same slice, or with the same piece.
  int64_t dense_at(int64_t rank) const { return rank / options_.tensor.tensor; }
  int64_t stack_at(int64_t rank) const { return rank / pieces(); }
  const ShardedState& Of(int64_t rank, size_t i) const {
    return is_stack_[i] ? stacks_[static_cast<size_t>(piece(rank))]
                        : dense_[static_cast<size_t>(slice(rank))];
  }
  int64_t At(int64_t rank, size_t i) const {
    return is_stack_[i] ? stack_at(rank) : dense_at(rank);
  }

  // Runs the micro-batches of a group on the ranks of a replica.
  void Run(int64_t replica, const EagerGroup& micro_batches, std::span<const at::Tensor> inputs,
           const at::Tensor& count, StepParts& parts) const;
  // Reduces the gradients of a group of micro-batches.
  void Reduce(StepParts& parts, bool ends_batch);
  at::Tensor Norms(int64_t rank) const;
  at::Tensor ClipNorm(int64_t replica) const;
  // Updates the matrices that need whole gradients, on all ranks of a replica.
  void UpdateMatrices(int64_t replica, const at::Tensor& norm, double lr);

  const Model& model_;
  ExpertParallelOptions options_;
  // By parameter: whether it is a stack of experts, and its position among the stacks or among the
  // others.
  std::vector<bool> is_stack_;
  std::vector<size_t> place_;
  // By parameter: whether every slice has all of it.
  std::vector<bool> is_whole_;
  std::vector<ShardedState> dense_;
  std::vector<ShardedState> stacks_;
};

}  // namespace heddle::run
