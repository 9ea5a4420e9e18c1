// ShardedState: the shards of some parameters on the ranks of a mesh [replicate, shard], and
// FSDP2's operations on them. It gathers parameters, reduces gradients unit by unit, and updates
// shards. Rank = replica * shard + part.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/capture/capture.h"
#include "heddle/run/runtime/reducer.h"

namespace heddle::run {

// Returns a chunk as torch.chunk does: of size ceil(size / chunks), where the last ones may be
// shorter or empty.
at::Tensor EagerChunk(const at::Tensor& whole, int64_t dim, int64_t chunks, int64_t index);

struct StateRanks {
  int64_t replicate = 1;
  int64_t shard = 1;
  // Splits a dimension over two mesh axes: every `inner` consecutive ranks share a chunk and split
  // it among themselves. Divides `shard`.
  int64_t inner = 1;
  // The same for a third axis. Divides `inner`.
  int64_t innermost = 1;
};

class ShardedState {
 public:
  // `params` are whole, in registration order.
  ShardedState(std::span<const ParamSpec> specs, std::span<const at::Tensor> params,
               const StateRanks& ranks, const Reducer& reducer,
               std::optional<at::ScalarType> reduce_type, const OptimizerOptions& optimizer);

  int64_t ranks() const { return replicate_ * shard_; }
  // Gradients are those of the last step, before clipping. State that a parameter's rule does not
  // have is undefined.
  const at::Tensor& param(int64_t rank, size_t i) const { return state(rank).params[i]; }
  const at::Tensor& exp_avg(int64_t rank, size_t i) const { return state(rank).averages[i]; }
  const at::Tensor& exp_avg_sq(int64_t rank, size_t i) const { return state(rank).squares[i]; }
  const at::Tensor& momentum_buffer(int64_t rank, size_t i) const { return state(rank).momenta[i]; }
  const at::Tensor& grad(int64_t rank, size_t i) const { return state(rank).grads[i]; }

  // Gathers whole parameters from the ranks of a replica.
  std::vector<at::Tensor> Gather(int64_t replica) const;
  // Frees the gradients of the previous step.
  void BeginStep();
  // Reduces the gradients of whole parameters of every rank to shards, and adds them to those of
  // the batch. Frees those of a unit after its reduction.
  void Reduce(std::vector<std::vector<at::Tensor>> grads_by_rank);
  // Adds the gradients of the batch to those of the step.
  void EndBatch();
  // Returns the norm of a rank's shard of each gradient; undefined for parameters that are not
  // trained.
  std::vector<at::Tensor> Norms(int64_t rank) const;
  // Clips by the norm of all gradients if the options ask for it, and updates the shards, except
  // those of Muon's matrices.
  void Update(int64_t rank, const at::Tensor& norm, double lr, int64_t step);
  // Clips the gradient of one of Muon's matrices, and adds it to the momentum buffers of a replica.
  // Returns the whole matrix that gives the direction of the update.
  at::Tensor Direction(int64_t replica, size_t param, const at::Tensor& norm);
  // Decays the matrix at the rate `decay_lr`, and adds the shards of `-lr * change`.
  void Apply(int64_t replica, size_t param, const at::Tensor& change, double lr, double decay_lr);

 private:
  struct RankState {
    std::vector<at::Tensor> params;
    std::vector<at::Tensor> averages;
    std::vector<at::Tensor> squares;
    std::vector<at::Tensor> momenta;
    std::vector<at::Tensor> grads;
    std::vector<at::Tensor> batch_grads;
  };
  at::Tensor Clipped(const at::Tensor& grad, const at::Tensor& norm) const;
  void RunFusedAdamW(RankState& state, size_t param, const at::Tensor& grad, double lr,
                     int64_t step) const;
  void RunAdamW(RankState& state, size_t param, const at::Tensor& grad, double lr,
                int64_t step) const;
  void RunSgd(RankState& state, size_t param, at::Tensor grad, double lr, int64_t step) const;
  const RankState& state(int64_t rank) const { return states_[static_cast<size_t>(rank)]; }
  // Returns the dimension that is split.
  int64_t ShardDim(size_t param) const;
  // Returns a rank's shard of a parameter or its gradient.
  at::Tensor PartOf(const at::Tensor& whole, size_t param, int64_t part) const;
  void ReduceUnit(std::span<const size_t> params, std::span<std::vector<at::Tensor>> grads_by_rank);

  int64_t replicate_;
  int64_t shard_;
  int64_t inner_;
  int64_t innermost_;
  Reducer reducer_;
  std::optional<at::ScalarType> reduce_type_;
  OptimizerOptions optimizer_;
  // By parameter.
  std::vector<OptimizerName> rules_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<bool> trained_;
  // Parameters of each unit that are trained, in registration order. Units are in the order of
  // their first parameters.
  std::vector<std::vector<size_t>> units_;
  std::vector<RankState> states_;
};

}  // namespace heddle::run
