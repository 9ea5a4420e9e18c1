#include "heddle/eager/tensor_parallel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sqrt.h>
#include <torch/csrc/autograd/autograd.h>

#include "heddle/eager/decoder_slice.h"
#include "heddle/eager/meeting.h"

namespace heddle {

EagerTensorParallel::EagerTensorParallel(const Model& model, std::span<const at::Tensor> params,
                                         const TensorParallelOptions& options)
    : model_(model), options_(options) {
  for (size_t i = 0; i < params.size(); ++i)
    (TensorSplitDim(model.params[i].name, /*own_tokens=*/false) ? split_ : whole_).push_back(i);
  for (int64_t slice = 0; slice < options.tensor; ++slice) {
    std::vector<at::Tensor> own(params.begin(), params.end());
    for (size_t i : split_)
      own[i] =
          EagerChunk(own[i], *TensorSplitDim(model.params[i].name, false), options.tensor, slice)
              .contiguous();
    slices_.emplace_back(model.params, own, StateRanks{options.data.replicate, options.data.shard},
                         options.data.reducer, options.data.reduce_type);
  }
}

EagerStep EagerTensorParallel::Step(std::span<const at::Tensor> inputs, double lr, int64_t step) {
  at::Tensor count = EagerTokenCount(model_, inputs.back());
  // By slice, by rank that has it.
  std::vector<std::vector<std::vector<at::Tensor>>> grads(slices_.size());
  std::vector<at::Tensor> losses;
  // By slice.
  std::vector<std::vector<at::Tensor>> params(slices_.size());
  for (int64_t part = 0; part < batch_ranks(); ++part) {
    // The ranks of a replica put the same together.
    for (size_t s = 0; s < slices_.size() && part % options_.data.shard == 0; ++s)
      params[s] = slices_[s].Gather(part / options_.data.shard);
    std::vector<at::Tensor> local = EagerLocalInputs(model_, inputs, batch_ranks(), part);
    std::vector<at::Tensor> slice_losses(slices_.size());
    Meeting meeting(options_.tensor, options_.data.reducer);
    meeting.Run([&](int64_t slice) {
      auto s = static_cast<size_t>(slice);
      DecoderSlice decoder(model_, {.tensor = {&meeting, slice},
                                    .sequence_parallel = options_.sequence_parallel,
                                    .split_loss = options_.split_loss});
      at::Tensor loss = at::div(decoder.LossSum(params[s], local).loss, count);
      slice_losses[s] = loss.detach().view({1});
      std::vector<at::Tensor> own = torch::autograd::grad({loss}, params[s], {at::ones_like(loss)});
      grads[s].resize(static_cast<size_t>(batch_ranks()));
      grads[s][static_cast<size_t>(part)] = std::move(own);
    });
    // Of a loss that is not split every rank has all.
    slice_losses.resize(options_.split_loss ? slices_.size() : 1);
    losses.insert(losses.end(), slice_losses.begin(), slice_losses.end());
  }
  at::NoGradGuard no_grad;
  params.clear();
  for (size_t s = 0; s < slices_.size(); ++s) slices_[s].Reduce(std::move(grads[s]));
  EagerStep result;
  result.loss = options_.data.reducer.Reduce(losses, ReduceOp::kSum, /*rows=*/false).squeeze(0);
  for (int64_t replica = 0; replica < options_.data.replicate; ++replica) {
    at::Tensor norm = ClipNorm(replica);
    if (replica == 0) result.grad_norm = norm;
    for (int64_t part = 0; part < options_.data.shard; ++part) {
      for (ShardedState& slice : slices_)
        slice.Update(replica * options_.data.shard + part, norm, options_.data.optimizer, lr, step);
    }
  }
  return result;
}

// The norm of the norms of all gradients, whose squares are summed over the ranks of a replica. What is whole on every slice counts
// once.
at::Tensor EagerTensorParallel::ClipNorm(int64_t replica) const {
  std::vector<at::Tensor> squares;
  for (int64_t part = 0; part < options_.data.shard; ++part) {
    for (const ShardedState& slice : slices_) {
      at::Tensor norms = slice.Norms(replica * options_.data.shard + part);
      if (&slice != slices_.data()) {
        for (size_t i : whole_) norms[static_cast<int64_t>(i)].zero_();
      }
      squares.push_back(at::mul(norms, norms));
    }
  }
  at::Tensor sums = options_.data.reducer.Reduce(squares, ReduceOp::kSum, /*rows=*/false);
  return at::linalg_vector_norm(at::sqrt(sums), 2);
}

}  // namespace heddle
