#include "heddle/run/eager/sharded_state.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace heddle::run {
namespace {

void AddTo(at::Tensor& sum, at::Tensor grad) {
  sum = sum.defined() ? at::add(sum, grad) : std::move(grad);
}

}  // namespace

at::Tensor EagerChunk(const at::Tensor& whole, int64_t dim, int64_t chunks, int64_t index) {
  int64_t size = whole.size(dim);
  int64_t length = (size + chunks - 1) / chunks;
  int64_t begin = std::min(size, index * length);
  return whole.narrow(dim, begin, std::min(length, size - begin));
}

ShardedState::ShardedState(std::span<const ParamSpec> specs, std::span<const at::Tensor> params,
                           const StateRanks& ranks, const Reducer& reducer,
                           std::optional<at::ScalarType> reduce_type,
                           const OptimizerOptions& optimizer)
    : replicate_(ranks.replicate),
      shard_(ranks.shard),
      inner_(ranks.inner),
      innermost_(ranks.innermost),
      reducer_(reducer),
      reduce_type_(reduce_type),
      optimizer_(optimizer) {
  std::map<std::string, size_t> unit_at;
  for (size_t i = 0; i < specs.size(); ++i) {
    shapes_.push_back(params[i].sizes().vec());
    trained_.push_back(specs[i].trainable);
    rules_.push_back(optimizer.RuleOf(specs[i]));
    if (!specs[i].trainable) continue;
    auto [at, added] = unit_at.try_emplace(specs[i].unit, units_.size());
    if (added) units_.emplace_back();
    units_[at->second].push_back(i);
  }
  for (int64_t rank = 0; rank < replicate_ * shard_; ++rank) {
    RankState state;
    for (size_t i = 0; i < params.size(); ++i) {
      at::Tensor part = PartOf(params[i], i, rank % shard_);
      state.params.push_back(part.clone(at::MemoryFormat::Contiguous));
      auto zeros_if = [&](bool exists) {
        return exists ? at::zeros_like(state.params.back()) : at::Tensor();
      };
      bool adamw = trained_[i] && rules_[i] == OptimizerName::kAdamW;
      state.averages.push_back(zeros_if(adamw));
      state.squares.push_back(zeros_if(adamw));
      state.momenta.push_back(zeros_if(trained_[i] && !adamw && optimizer.has_momentum()));
    }
    states_.push_back(std::move(state));
  }
}

// With more ranks than experts, stacks of experts are split within each expert.
int64_t ShardedState::ShardDim(size_t param) const {
  return shapes_[param].size() == 3 && shard_ > shapes_[param][0] ? 1 : 0;
}

at::Tensor ShardedState::PartOf(const at::Tensor& whole, size_t param, int64_t part) const {
  at::Tensor chunk = EagerChunk(whole, ShardDim(param), shard_ / inner_, part / inner_);
  chunk = EagerChunk(chunk, ShardDim(param), inner_ / innermost_, part % inner_ / innermost_);
  return EagerChunk(chunk, ShardDim(param), innermost_, part % innermost_);
}

std::vector<at::Tensor> ShardedState::Gather(int64_t replica) const {
  std::vector<at::Tensor> whole;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    std::vector<at::Tensor> parts;
    for (int64_t part = 0; part < shard_; ++part)
      parts.push_back(param(replica * shard_ + part, i));
    whole.push_back(at::cat(parts, ShardDim(i)).requires_grad_(trained_[i]));
  }
  return whole;
}

void ShardedState::BeginStep() {
  for (RankState& state : states_) {
    state.grads.assign(shapes_.size(), at::Tensor());
    state.batch_grads = state.grads;
  }
}

void ShardedState::EndBatch() {
  for (RankState& state : states_) {
    for (size_t i = 0; i < shapes_.size(); ++i)
      AddTo(state.grads[i], std::exchange(state.batch_grads[i], at::Tensor()));
  }
}

void ShardedState::Reduce(std::vector<std::vector<at::Tensor>> grads_by_rank) {
  // Backward reaches the last unit first.
  for (size_t u = units_.size(); u-- > 0;) ReduceUnit(units_[u], grads_by_rank);
}

void ShardedState::ReduceUnit(std::span<const size_t> params,
                              std::span<std::vector<at::Tensor>> grads_by_rank) {
  // One row for each part: the padded chunk of every gradient, in registration order.
  std::vector<int64_t> lengths;
  int64_t row = 0;
  for (size_t i : params) {
    at::Tensor first = PartOf(grads_by_rank[0][i], i, 0);
    lengths.push_back(first.numel());
    row += first.numel();
  }
  std::vector<at::Tensor> payloads;
  for (std::vector<at::Tensor>& grads : grads_by_rank) {
    at::TensorOptions options = grads[params[0]].options();
    at::Tensor payload =
        at::zeros({shard_, row}, reduce_type_ ? options.dtype(*reduce_type_) : options);
    for (int64_t part = 0; part < shard_; ++part) {
      int64_t offset = 0;
      for (size_t k = 0; k < params.size(); ++k) {
        at::Tensor chunk = PartOf(grads[params[k]], params[k], part);
        payload[part].narrow(0, offset, chunk.numel()).copy_(chunk.reshape({-1}));
        offset += lengths[k];
      }
    }
    payloads.push_back(payload.view({-1}));
    for (size_t i : params) grads[i].reset();
  }
  // Scatters the sum of each replica over its parts, then sums over replicas.
  std::vector<at::Tensor> sums;
  for (int64_t replica = 0; replica < replicate_; ++replica) {
    std::span<const at::Tensor> group(payloads.data() + replica * shard_,
                                      static_cast<size_t>(shard_));
    sums.push_back(reducer_.Reduce(group, ReduceOp::kSum, /*rows=*/true));
  }
  for (int64_t part = 0; part < shard_; ++part) {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& sum : sums) rows.push_back(sum.narrow(0, part * row, row).contiguous());
    at::Tensor sum = reducer_.Reduce(rows, ReduceOp::kSum, /*rows=*/false);
    for (int64_t replica = 0; replica < replicate_; ++replica) {
      int64_t rank = replica * shard_ + part;
      int64_t offset = 0;
      for (size_t k = 0; k < params.size(); ++k) {
        const at::Tensor& own = param(rank, params[k]);
        AddTo(states_[static_cast<size_t>(rank)].batch_grads[params[k]],
              sum.narrow(0, offset, own.numel())
                  .view(own.sizes())
                  .to(own.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
        offset += lengths[k];
      }
    }
  }
}

std::vector<at::Tensor> ShardedState::Norms(int64_t rank) const {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& grad : state(rank).grads) {
    if (grad.defined()) defined.push_back(grad);
  }
  std::vector<at::Tensor> found = at::_foreach_norm(defined, 2);
  std::vector<at::Tensor> norms(trained_.size());
  for (size_t i = 0, next = 0; i < norms.size(); ++i) {
    if (trained_[i]) norms[i] = found[next++];
  }
  return norms;
}

at::Tensor ShardedState::Clipped(const at::Tensor& grad, const at::Tensor& norm) const {
  if (optimizer_.max_norm <= 0) return grad;
  at::Tensor factor = at::clamp(at::mul(at::reciprocal(at::add(norm, 1e-6)), optimizer_.max_norm),
                                std::nullopt, 1.0);
  return at::mul(grad, factor);
}

void ShardedState::Update(int64_t rank, const at::Tensor& norm, double lr, int64_t step) {
  RankState& state = states_[static_cast<size_t>(rank)];
  for (size_t i = 0; i < state.params.size(); ++i) {
    if (!trained_[i] || rules_[i] == OptimizerName::kMuon) continue;
    at::Tensor grad = Clipped(state.grads[i], norm);
    if (rules_[i] == OptimizerName::kSgd) {
      RunSgd(state, i, grad, lr, step);
    } else if (optimizer_.fused()) {
      RunFusedAdamW(state, i, grad, lr, step);
    } else {
      RunAdamW(state, i, grad, lr, step);
    }
  }
}

void ShardedState::RunFusedAdamW(RankState& state, size_t param, const at::Tensor& grad, double lr,
                                 int64_t step) const {
  const OptimizerOptions& o = optimizer_;
  at::Tensor number = at::full({}, static_cast<double>(step), grad.options().dtype(at::kFloat));
  at::_fused_adamw_({state.params[param]}, {grad}, {state.averages[param]}, {state.squares[param]},
                    {}, {number}, lr, o.beta1, o.beta2, o.DecayOf(shapes_[param].size()), o.eps,
                    /*amsgrad=*/false,
                    /*maximize=*/false);
}

// AdamW as PyTorch computes it without `fused` and `foreach`.
void ShardedState::RunAdamW(RankState& state, size_t param, const at::Tensor& grad, double lr,
                            int64_t step) const {
  const OptimizerOptions& o = optimizer_;
  double first = 1 - std::pow(o.beta1, static_cast<double>(step));
  double second = 1 - std::pow(o.beta2, static_cast<double>(step));
  double decay = o.DecayOf(shapes_[param].size());
  if (decay != 0) state.params[param].mul_(1 - lr * decay);
  state.averages[param].lerp_(grad, 1 - o.beta1);
  state.squares[param].mul_(o.beta2).addcmul_(grad, grad, 1 - o.beta2);
  at::Tensor spread = at::sqrt(state.squares[param]).div_(std::sqrt(second)).add_(o.eps);
  state.params[param].addcdiv_(state.averages[param], spread, -(lr / first));
}

// torch.optim.SGD without `fused` and `foreach`.
void ShardedState::RunSgd(RankState& state, size_t param, at::Tensor grad, double lr,
                          int64_t step) const {
  const OptimizerOptions& o = optimizer_;
  double decay = o.DecayOf(shapes_[param].size());
  if (decay != 0) grad = grad.add(state.params[param], decay);
  if (o.Momentum() != 0) {
    at::Tensor& buffer = state.momenta[param];
    if (step == 1) {
      buffer.copy_(grad);
    } else {
      buffer.mul_(o.Momentum()).add_(grad, 1 - o.dampening);
    }
    grad = o.Nesterov() ? grad.add(buffer, o.Momentum()) : buffer;
  }
  state.params[param].add_(grad, -lr);
}

// The first half of torch.optim.Muon.
at::Tensor ShardedState::Direction(int64_t replica, size_t param, const at::Tensor& norm) {
  std::vector<at::Tensor> parts;
  for (int64_t part = 0; part < shard_; ++part) {
    RankState& state = states_[static_cast<size_t>(replica * shard_ + part)];
    at::Tensor grad = Clipped(state.grads[param], norm);
    at::Tensor& buffer = state.momenta[param];
    buffer.lerp_(grad, 1 - optimizer_.Momentum());
    parts.push_back(optimizer_.Nesterov() ? grad.lerp(buffer, optimizer_.Momentum()) : buffer);
  }
  return at::cat(parts, ShardDim(param));
}

void ShardedState::Apply(int64_t replica, size_t param, const at::Tensor& change, double lr,
                         double decay_lr) {
  for (int64_t part = 0; part < shard_; ++part) {
    at::Tensor& own = states_[static_cast<size_t>(replica * shard_ + part)].params[param];
    own.mul_(1 - decay_lr * optimizer_.weight_decay);
    own.add_(PartOf(change, param, part), -lr);
  }
}

}  // namespace heddle::run
