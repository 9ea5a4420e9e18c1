// What the ranks of a mesh [replicate, shard] hold of some parameters, and what FSDP2 does with it: parameters are put together,
// gradients reduced unit by unit, parts updated by AdamW. Ranks count with parts fastest.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/capture/capture.h"
#include "heddle/run/runtime/reducer.h"

namespace heddle::run {

// Chunks of the ceiling: the last ones are shorter, or empty.
at::Tensor EagerChunk(const at::Tensor& whole, int64_t dim, int64_t chunks, int64_t index);

struct StateRanks {
  int64_t replicate = 1;
  int64_t shard = 1;
  // Groups of so many that follow each other share a chunk, and cut it among themselves: two axes of a mesh. Divides `shard`.
  int64_t inner = 1;
};

class ShardedState {
 public:
  // Parameters are given whole, in registration order.
  ShardedState(std::span<const ParamSpec> specs, std::span<const at::Tensor> params,
               const StateRanks& ranks, const Reducer& reducer,
               std::optional<at::ScalarType> reduce_type);

  int64_t ranks() const { return replicate_ * shard_; }
  // Gradients are those of the last step, before clipping.
  const at::Tensor& param(int64_t rank, size_t i) const { return state(rank).params[i]; }
  const at::Tensor& exp_avg(int64_t rank, size_t i) const { return state(rank).averages[i]; }
  const at::Tensor& exp_avg_sq(int64_t rank, size_t i) const { return state(rank).squares[i]; }
  const at::Tensor& grad(int64_t rank, size_t i) const { return state(rank).grads[i]; }

  // Whole parameters, as the ranks of a replica put them together.
  std::vector<at::Tensor> Gather(int64_t replica) const;
  // Gradients of whole parameters, of every rank, to what each rank keeps. Those of a unit go when it is reduced.
  void Reduce(std::vector<std::vector<at::Tensor>> grads_by_rank);
  // The norm of what a rank has of each gradient, as a vector.
  at::Tensor Norms(int64_t rank) const;
  // Clips by the norm of all gradients, unless the options say otherwise, and steps.
  void Update(int64_t rank, const at::Tensor& norm, const OptimizerOptions& options, double lr,
              int64_t step);

 private:
  struct RankState {
    std::vector<at::Tensor> params;
    std::vector<at::Tensor> averages;
    std::vector<at::Tensor> squares;
    std::vector<at::Tensor> grads;
  };
  static void UpdateInLoop(RankState& state, const at::Tensor& factor,
                           const OptimizerOptions& options, double lr, int64_t step);
  const RankState& state(int64_t rank) const { return states_[static_cast<size_t>(rank)]; }
  // The dimension that is cut.
  int64_t ShardDim(size_t param) const;
  // What a rank has of a parameter or its gradient.
  at::Tensor PartOf(const at::Tensor& whole, size_t param, int64_t part) const;
  void ReduceUnit(std::span<const size_t> params, std::span<std::vector<at::Tensor>> grads_by_rank);

  int64_t replicate_;
  int64_t shard_;
  int64_t inner_;
  Reducer reducer_;
  std::optional<at::ScalarType> reduce_type_;
  std::vector<std::vector<int64_t>> shapes_;
  // Parameters of each unit, in registration order; units in the order of their first parameters.
  std::vector<std::vector<size_t>> units_;
  std::vector<RankState> states_;
};

}  // namespace heddle::run
