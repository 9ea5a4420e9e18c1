// Eager expert parallelism, with FSDP2 or HSDP and tensor parallelism around it, without a graph. A model without experts, or whose experts
// nobody shares, is tensor-parallel alone.
//
// Ranks of a mesh [replicate, shard, tensor]; those of a replica are threads, which meet at collectives (meeting.h). Groups of `expert`
// ranks that follow each other share the experts: each has an equal part of every stack. Where tensor-parallel ranks split each expert,
// a group has every one of their slices once. A stack is kept in parts by the ranks of a replica that have the same of it, everything
// else by all ranks that have the same slice of it.
#pragma once

#include <span>
#include <vector>

#include "heddle/run/eager/data_parallel.h"
#include "heddle/run/eager/sharded_state.h"

namespace heddle::run {

struct TensorParallelOptions {
  DataParallelOptions data;
  // Rank = (replica * shard + part) * tensor + slice.
  int64_t tensor = 1;
  bool sequence_parallel = true;
  // The loss works on logits that are split by vocabulary; otherwise they are gathered.
  bool split_loss = true;
};

struct ExpertParallelOptions {
  TensorParallelOptions tensor;
  // Divides shard * tensor / expert_tensor, and is a multiple of tensor / expert_tensor.
  int64_t expert = 1;
  // Tensor-parallel ranks that split each expert: 1, or all of them.
  int64_t expert_tensor = 1;
};

class EagerExpertParallel {
 public:
  // Parameters are given whole, in registration order. The model must outlive this.
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
  const at::Tensor& grad(int64_t rank, size_t i) const {
    return Of(rank, i).grad(At(rank, i), place_[i]);
  }

 private:
  // Gradients by what ranks have in common (slice, or piece of stacks), by rank among those.
  using Grads = std::vector<std::vector<std::vector<at::Tensor>>>;
  struct StepParts {
    Grads dense;
    Grads stacks;
    // By rank.
    std::vector<at::Tensor> losses;
    std::vector<std::vector<BufferChange>> changes;
  };

  int64_t replica_ranks() const { return options_.tensor.data.shard * options_.tensor.tensor; }
  bool own_tokens() const { return options_.expert_tensor == 1; }
  // A stack is in so many pieces; ranks of a replica that have the same one.
  int64_t pieces() const { return options_.expert * options_.expert_tensor; }
  int64_t copies() const { return replica_ranks() / pieces(); }
  int64_t slice(int64_t rank) const { return rank % options_.tensor.tensor; }
  int64_t seat(int64_t rank) const { return rank / options_.expert_tensor % options_.expert; }
  int64_t piece(int64_t rank) const { return rank % pieces(); }
  // Of those that have the same slice, or the same piece.
  int64_t dense_at(int64_t rank) const { return rank / options_.tensor.tensor; }
  int64_t stack_at(int64_t rank) const { return rank / pieces(); }
  const ShardedState& Of(int64_t rank, size_t i) const {
    return is_stack_[i] ? stacks_[static_cast<size_t>(piece(rank))]
                        : dense_[static_cast<size_t>(slice(rank))];
  }
  int64_t At(int64_t rank, size_t i) const {
    return is_stack_[i] ? stack_at(rank) : dense_at(rank);
  }

  // Of one replica.
  void Run(int64_t replica, std::span<const at::Tensor> inputs, const at::Tensor& count,
           StepParts& parts) const;
  at::Tensor Norms(int64_t rank) const;
  at::Tensor ClipNorm(int64_t replica) const;

  const Model& model_;
  ExpertParallelOptions options_;
  // By parameter: whether it is a stack of experts, and its place among those that are, or are not.
  std::vector<bool> is_stack_;
  std::vector<size_t> place_;
  // Parameters that every slice has whole.
  std::vector<bool> is_whole_;
  std::vector<ShardedState> dense_;
  std::vector<ShardedState> stacks_;
};

}  // namespace heddle::run
