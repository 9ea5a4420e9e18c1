// Eager FSDP2, DDP and HSDP, without a graph: the reference that graphs are held against.
//
// All ranks of a mesh [replicate, shard] in this process. A rank has its part of every parameter, of its moments
// and of the batch. A step puts the parameters together, runs the model and autograd, reduces gradients unit by unit, clips by
// global norm and runs AdamW on its parts. It shares models and reducers with the rest of Heddle, and nothing else.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/eager/sharded_state.h"
#include "heddle/run/models/model.h"

namespace heddle::run {

struct DataParallelOptions {
  // Ranks with copies of the parameters, and among each copy ranks with parts of them. Rank = replica * shard + part.
  int64_t replicate = 1;
  int64_t shard = 1;
  Reducer reducer = Reducer();
  OptimizerOptions optimizer;
  // What gradients are summed in; unless said, the type of the parameters.
  std::optional<at::ScalarType> reduce_type = std::nullopt;
  // Models of so many ranks run at a time. Bits are the same with any number.
  int64_t threads = 1;
};

struct EagerStep {
  // The loss of all ranks together, as every rank has it, and the norm that gradients are clipped by.
  at::Tensor loss;
  at::Tensor grad_norm;
  // Buffers that the step changed, by their places among the inputs, as they are after it.
  std::map<size_t, at::Tensor> buffers;
};

// What the summed loss of a batch is divided by.
at::Tensor EagerTokenCount(const Model& model, const at::Tensor& labels);
// What one of `parts` equal parts of the rows of a batch consists of; buffers are whole.
std::vector<at::Tensor> EagerLocalInputs(const Model& model, std::span<const at::Tensor> inputs,
                                         int64_t parts, int64_t part);

class EagerDataParallel {
 public:
  // Parameters are given whole, in registration order. The model must outlive this.
  EagerDataParallel(const Model& model, std::span<const at::Tensor> params,
                    const DataParallelOptions& options);

  int64_t ranks() const { return options_.replicate * options_.shard; }
  // `inputs` are those of the whole batch; rank r takes the r-th of ranks() equal parts of its rows.
  EagerStep Step(std::span<const at::Tensor> inputs, double lr, int64_t step);

  // What a rank holds of parameter `i`. Gradients are those of the last step, before clipping.
  const at::Tensor& param(int64_t rank, size_t i) const { return state_.param(rank, i); }
  const at::Tensor& exp_avg(int64_t rank, size_t i) const { return state_.exp_avg(rank, i); }
  const at::Tensor& exp_avg_sq(int64_t rank, size_t i) const { return state_.exp_avg_sq(rank, i); }
  const at::Tensor& grad(int64_t rank, size_t i) const { return state_.grad(rank, i); }

 private:
  // What a rank's model and autograd give.
  struct RankStep {
    at::Tensor loss;
    std::vector<BufferChange> changes;
    std::vector<at::Tensor> grads;
  };

  RankStep RunRank(int64_t rank, std::span<const at::Tensor> params,
                   std::span<const at::Tensor> inputs, const at::Tensor& count) const;
  at::Tensor ClipNorm(int64_t replica) const;

  const Model& model_;
  DataParallelOptions options_;
  ShardedState state_;
};

}  // namespace heddle::run
