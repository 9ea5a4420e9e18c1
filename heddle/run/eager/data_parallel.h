// Eager FSDP2, DDP and HSDP without a graph: the reference that graphs are compared with.
//
// All ranks of a mesh [replicate, shard] run in this process. A rank has a shard of every parameter
// and its moments, and a part of the batch. A step gathers the parameters, runs the model and
// autograd, reduces the gradients unit by unit, clips by global norm, and updates its shards.
// It shares only the models and reducers with the rest of Heddle.
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
  // Number of replicas of the parameters, and number of shards of each. Rank = replica * shard +
  // part.
  int64_t replicate = 1;
  int64_t shard = 1;
  Reducer reducer = Reducer();
  OptimizerOptions optimizer;
  // The element type in which gradients are summed; by default that of the parameters.
  std::optional<at::ScalarType> reduce_type = std::nullopt;
  // Batches of a step, and micro-batches of a batch. A rank adds the gradients of each
  // `reduce_every` micro-batches of a batch (0: all) before it reduces them. The reduced gradients
  // of a batch are added, and then those of all batches.
  int64_t batches = 1;
  int64_t micro_batches = 1;
  int64_t reduce_every = 0;
  // The pipeline coordinate of each parameter. A unit is reduced on each of its coordinates. Empty:
  // no pipeline.
  std::vector<int64_t> coordinates = {};
  // Number of ranks whose models run in parallel. It does not change the bits.
  int64_t threads = 1;
};

// Micro-batches whose gradients are reduced together: `first` to `end` - 1 of all of a step.
struct EagerGroup {
  int64_t first = 0;
  int64_t end = 0;
  // Whether it is the last of its batch.
  bool ends_batch = false;
};
std::vector<EagerGroup> EagerGroups(const DataParallelOptions& options);

struct EagerStep {
  // The loss over all ranks, and the gradient norm before clipping. All ranks agree on both.
  at::Tensor loss;
  at::Tensor grad_norm;
  // New values of the buffers that the step changed, by their positions among the inputs.
  std::map<size_t, at::Tensor> buffers;
};

// Returns the divisor of the summed loss of a batch.
at::Tensor EagerTokenCount(const Model& model, const at::Tensor& labels);
// One of `parts` equal parts.
struct EagerPart {
  int64_t parts = 1;
  int64_t part = 0;
  // For positions: see ContextSplit.
  bool head_tail = false;
};
// Returns the inputs for a part of the rows of a batch, and for a part of the positions. Buffers
// that do not depend on positions are whole.
std::vector<at::Tensor> EagerLocalInputs(const Model& model, std::span<const at::Tensor> inputs,
                                         const EagerPart& rows, const EagerPart& positions = {});

// Returns the inputs for one of `count` micro-batches, of all ranks.
std::vector<at::Tensor> EagerMicroBatch(const Model& model, std::span<const at::Tensor> inputs,
                                        int64_t count, int64_t micro_batch);
// The gradients of the loss; undefined for parameters that do not require them.
std::vector<at::Tensor> EagerGradients(const at::Tensor& loss, std::span<const at::Tensor> params);
// The gradients of a rank's parameters so far, with those of the next micro-batch: in
// `reduce_type`, if given.
std::vector<at::Tensor> EagerAdded(std::vector<at::Tensor> sum, std::vector<at::Tensor> grads,
                                   std::optional<at::ScalarType> reduce_type);
// The sum of losses over ranks, then over the micro-batches of each batch, then over batches.
at::Tensor EagerLoss(const std::vector<std::vector<at::Tensor>>& by_micro_batch, int64_t batches,
                     const Reducer& reducer);
// The parameters, in separate units on each coordinate of a pipeline.
std::vector<ParamSpec> EagerSpecs(const Model& model, const std::vector<int64_t>& coordinates);

class EagerDataParallel {
 public:
  // `params` are whole, in registration order. `model` must outlive this object.
  EagerDataParallel(const Model& model, std::span<const at::Tensor> params,
                    const DataParallelOptions& options);

  int64_t ranks() const { return options_.replicate * options_.shard; }
  // Runs one step. `inputs` are those of the whole batch; of each micro-batch, rank r takes the
  // r-th of ranks() equal parts of the rows.
  EagerStep Step(std::span<const at::Tensor> inputs, double lr, int64_t step);

  // The shards that a rank stores for parameter `i`. Gradients are those of the last step, before
  // clipping.
  const at::Tensor& param(int64_t rank, size_t i) const { return state_.param(rank, i); }
  const at::Tensor& exp_avg(int64_t rank, size_t i) const { return state_.exp_avg(rank, i); }
  const at::Tensor& exp_avg_sq(int64_t rank, size_t i) const { return state_.exp_avg_sq(rank, i); }
  const at::Tensor& momentum_buffer(int64_t rank, size_t i) const {
    return state_.momentum_buffer(rank, i);
  }
  const at::Tensor& grad(int64_t rank, size_t i) const { return state_.grad(rank, i); }

 private:
  // Results of one rank's model and autograd.
  struct RankStep {
    // By micro-batch.
    std::vector<at::Tensor> losses;
    std::vector<BufferChange> changes;
    // Sums over the micro-batches of the current group.
    std::vector<at::Tensor> grads;
  };

  void RunRank(int64_t rank, std::span<const at::Tensor> params, std::span<const at::Tensor> inputs,
               const at::Tensor& count, const EagerGroup& group, RankStep& step) const;
  // Runs the micro-batches of a group on all ranks, and reduces their gradients.
  void RunGroup(const EagerGroup& group, std::span<const at::Tensor> inputs,
                const at::Tensor& count, std::vector<RankStep>& ran);
  at::Tensor ClipNorm(int64_t replica) const;
  // Updates the matrices that need whole gradients, on all ranks of a replica.
  void UpdateMatrices(int64_t replica, const at::Tensor& norm, double lr);

  const Model& model_;
  DataParallelOptions options_;
  ShardedState state_;
};

}  // namespace heddle::run
