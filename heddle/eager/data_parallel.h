// Eager FSDP2, DDP and HSDP, without a graph: the reference that graphs are held against.
//
// All ranks of a mesh [replicate, shard] in this process, one after the other. A rank has its part of every parameter, of its moments
// and of the batch. A step puts the parameters together, runs the model and autograd, reduces gradients unit by unit, clips by
// global norm and runs AdamW on its parts. It shares models and reducers with the rest of Heddle, and nothing else.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/models/model.h"
#include "heddle/runtime/reducer.h"

namespace heddle {

struct DataParallelOptions {
  // Ranks with copies of the parameters, and among each copy ranks with parts of them. Rank = replica * shard + part.
  int64_t replicate = 1;
  int64_t shard = 1;
  Reducer reducer = Reducer();
  OptimizerOptions optimizer;
};

class EagerDataParallel {
 public:
  // Parameters are given whole, in registration order.
  EagerDataParallel(const Model& model, std::span<const at::Tensor> params,
                    const DataParallelOptions& options);

  int64_t ranks() const { return options_.replicate * options_.shard; }

  struct StepResult {
    // The loss of all ranks together, as every rank has it.
    at::Tensor loss;
    at::Tensor grad_norm;
  };
  // `inputs` are those of the whole batch (MakeInputs); rank r takes the r-th of as many equal parts of its rows.
  StepResult Step(std::span<const at::Tensor> inputs, double lr, int64_t step);

  // What a rank holds of parameter `i`. Gradients are those of the last step, before clipping.
  const at::Tensor& param(int64_t rank, size_t i) const { return state(rank).params[i]; }
  const at::Tensor& exp_avg(int64_t rank, size_t i) const { return state(rank).averages[i]; }
  const at::Tensor& exp_avg_sq(int64_t rank, size_t i) const { return state(rank).squares[i]; }
  const at::Tensor& grad(int64_t rank, size_t i) const { return state(rank).grads[i]; }

 private:
  struct RankState {
    std::vector<at::Tensor> params;
    std::vector<at::Tensor> averages;
    std::vector<at::Tensor> squares;
    std::vector<at::Tensor> grads;
  };
  const RankState& state(int64_t rank) const { return states_[static_cast<size_t>(rank)]; }

  // The dimension that is cut, and a rank's part of it.
  int64_t ShardDim(size_t param) const;
  at::Tensor PartOf(const at::Tensor& whole, size_t param, int64_t part) const;
  std::vector<at::Tensor> Gather(int64_t replica) const;
  // What rank `rank` works on of the inputs of the whole batch.
  std::vector<at::Tensor> LocalInputs(std::span<const at::Tensor> inputs, int64_t rank) const;
  at::Tensor TokensThatCount(std::span<const at::Tensor> inputs) const;
  // Gradients of whole parameters, of every rank, to what each rank keeps.
  void Reduce(std::span<const std::vector<at::Tensor>> grads_by_rank);
  void ReduceUnit(std::span<const size_t> params,
                  std::span<const std::vector<at::Tensor>> grads_by_rank);
  at::Tensor ClipNorm(int64_t replica) const;
  void Update(int64_t rank, const at::Tensor& norm, double lr, int64_t step);

  const Model& model_;
  DataParallelOptions options_;
  std::vector<RankState> states_;
  // Parameters of each unit, in registration order; units in the order of their first parameters.
  std::vector<std::vector<size_t>> units_;
};

}  // namespace heddle
