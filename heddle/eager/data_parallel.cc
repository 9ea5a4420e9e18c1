#include "heddle/eager/data_parallel.h"

#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

namespace heddle {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Chunks of the ceiling: the last ones are shorter, or empty.
at::Tensor Chunk(const at::Tensor& whole, int64_t dim, int64_t chunks, int64_t index) {
  int64_t size = whole.size(dim);
  int64_t length = CeilDiv(size, chunks);
  int64_t begin = std::min(size, index * length);
  return whole.narrow(dim, begin, std::min(length, size - begin));
}

}  // namespace

EagerDataParallel::EagerDataParallel(const Model& model, std::span<const at::Tensor> params,
                                     const DataParallelOptions& options)
    : model_(model), options_(options) {
  std::map<std::string, size_t> unit_at;
  for (size_t i = 0; i < model.params.size(); ++i) {
    auto [at, added] = unit_at.try_emplace(model.params[i].unit, units_.size());
    if (added) units_.emplace_back();
    units_[at->second].push_back(i);
  }
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    RankState state;
    for (size_t i = 0; i < params.size(); ++i) {
      state.params.push_back(PartOf(params[i], i, rank % options_.shard));
      state.averages.push_back(at::zeros_like(state.params.back()));
      state.squares.push_back(at::zeros_like(state.params.back()));
    }
    states_.push_back(std::move(state));
  }
}

// Stacks of experts are cut inside of each expert when there are more ranks than experts.
int64_t EagerDataParallel::ShardDim(size_t param) const {
  const std::vector<int64_t>& shape = model_.params[param].shape;
  return shape.size() == 3 && options_.shard > shape[0] ? 1 : 0;
}

at::Tensor EagerDataParallel::PartOf(const at::Tensor& whole, size_t param, int64_t part) const {
  return Chunk(whole, ShardDim(param), options_.shard, part).clone(at::MemoryFormat::Contiguous);
}

std::vector<at::Tensor> EagerDataParallel::Gather(int64_t replica) const {
  std::vector<at::Tensor> whole;
  for (size_t i = 0; i < model_.params.size(); ++i) {
    std::vector<at::Tensor> parts;
    for (int64_t part = 0; part < options_.shard; ++part)
      parts.push_back(param(replica * options_.shard + part, i));
    whole.push_back(at::cat(parts, ShardDim(i)).requires_grad_());
  }
  return whole;
}

std::vector<at::Tensor> EagerDataParallel::LocalInputs(std::span<const at::Tensor> inputs,
                                                       int64_t rank) const {
  std::vector<at::Tensor> local;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool batch = model_.inputs[i].role == InputRole::kBatch;
    local.push_back(batch ? Chunk(inputs[i], 0, ranks(), rank).contiguous() : inputs[i]);
  }
  return local;
}

at::Tensor EagerDataParallel::TokensThatCount(std::span<const at::Tensor> inputs) const {
  const at::Tensor& labels = inputs.back();
  if (model_.numerics.loss_divisor == LossDivisor::kAllTokens)
    return at::full({}, labels.numel(), at::kLong);
  return at::sum(at::ne(labels, kIgnoredLabel));
}

EagerDataParallel::StepResult EagerDataParallel::Step(std::span<const at::Tensor> inputs, double lr,
                                                      int64_t step) {
  at::Tensor count = TokensThatCount(inputs);
  std::vector<at::Tensor> losses;
  std::vector<std::vector<at::Tensor>> grads_by_rank;
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    std::vector<at::Tensor> params = Gather(rank / options_.shard);
    at::Tensor loss = at::div(model_.loss_sum(params, LocalInputs(inputs, rank)), count);
    grads_by_rank.push_back(torch::autograd::grad({loss}, params, {at::ones_like(loss)}));
    losses.push_back(loss.detach().view({1}));
  }
  at::NoGradGuard no_grad;
  Reduce(grads_by_rank);
  StepResult result;
  result.loss = options_.reducer.Reduce(losses, ReduceOp::kSum, /*rows=*/false).squeeze(0);
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    at::Tensor norm = ClipNorm(rank / options_.shard);
    if (rank == 0) result.grad_norm = norm;
    Update(rank, norm, lr, step);
  }
  return result;
}

void EagerDataParallel::Reduce(std::span<const std::vector<at::Tensor>> grads_by_rank) {
  for (RankState& state : states_) state.grads.resize(model_.params.size());
  // Backward reaches the last unit first.
  for (size_t u = units_.size(); u-- > 0;) ReduceUnit(units_[u], grads_by_rank);
}

void EagerDataParallel::ReduceUnit(std::span<const size_t> params,
                                   std::span<const std::vector<at::Tensor>> grads_by_rank) {
  int64_t shard = options_.shard;
  // One row for each part: the padded chunk of every gradient, in registration order.
  std::vector<int64_t> lengths;
  int64_t row = 0;
  for (size_t i : params) {
    at::Tensor first = Chunk(grads_by_rank[0][i], ShardDim(i), shard, 0);
    lengths.push_back(first.numel());
    row += first.numel();
  }
  std::vector<at::Tensor> payloads;
  for (const std::vector<at::Tensor>& grads : grads_by_rank) {
    at::Tensor payload = at::zeros({shard, row}, grads[params[0]].options());
    for (int64_t part = 0; part < shard; ++part) {
      int64_t offset = 0;
      for (size_t k = 0; k < params.size(); ++k) {
        at::Tensor chunk = Chunk(grads[params[k]], ShardDim(params[k]), shard, part);
        payload[part].narrow(0, offset, chunk.numel()).copy_(chunk.reshape({-1}));
        offset += lengths[k];
      }
    }
    payloads.push_back(payload.view({-1}));
  }
  // Scattered among the parts of each replica, then summed over replicas.
  for (int64_t part = 0; part < shard; ++part) {
    std::vector<at::Tensor> rows;
    for (int64_t replica = 0; replica < options_.replicate; ++replica) {
      std::span<const at::Tensor> group(payloads.data() + replica * shard,
                                        static_cast<size_t>(shard));
      rows.push_back(options_.reducer.Reduce(group, ReduceOp::kSum, /*rows=*/true)
                         .narrow(0, part * row, row)
                         .contiguous());
    }
    at::Tensor sum = options_.reducer.Reduce(rows, ReduceOp::kSum, /*rows=*/false);
    for (int64_t replica = 0; replica < options_.replicate; ++replica) {
      int64_t rank = replica * shard + part;
      int64_t offset = 0;
      for (size_t k = 0; k < params.size(); ++k) {
        const at::Tensor& own = param(rank, params[k]);
        states_[static_cast<size_t>(rank)].grads[params[k]] =
            sum.narrow(0, offset, own.numel()).view(own.sizes()).clone();
        offset += lengths[k];
      }
    }
  }
}

// The norm of each gradient's part, the norm of these, and the squares of all parts summed.
at::Tensor EagerDataParallel::ClipNorm(int64_t replica) const {
  std::vector<at::Tensor> squares;
  for (int64_t part = 0; part < options_.shard; ++part) {
    std::vector<at::Tensor> norms;
    for (const at::Tensor& grad : state(replica * options_.shard + part).grads)
      norms.push_back(at::linalg_vector_norm(grad, 2));
    at::Tensor norm = at::linalg_vector_norm(at::stack(norms), 2);
    squares.push_back(at::mul(norm, norm).view({1}));
  }
  return at::sqrt(options_.reducer.Reduce(squares, ReduceOp::kSum, /*rows=*/false)).squeeze(0);
}

void EagerDataParallel::Update(int64_t rank, const at::Tensor& norm, double lr, int64_t step) {
  RankState& state = states_[static_cast<size_t>(rank)];
  const OptimizerOptions& o = options_.optimizer;
  at::Tensor factor =
      at::clamp(at::mul(at::reciprocal(at::add(norm, 1e-6)), o.max_norm), std::nullopt, 1.0);
  at::Tensor number = at::full({}, static_cast<double>(step), at::kFloat);
  for (size_t i = 0; i < state.params.size(); ++i) {
    at::Tensor grad = o.max_norm > 0 ? at::mul(state.grads[i], factor) : state.grads[i];
    at::_fused_adamw_({state.params[i]}, {grad}, {state.averages[i]}, {state.squares[i]}, {},
                      {number}, lr, o.beta1, o.beta2, o.weight_decay, o.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

}  // namespace heddle
