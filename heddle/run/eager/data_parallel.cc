#include "heddle/run/eager/data_parallel.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/autograd.h>

#include "heddle/run/eager/context_attention.h"
#include "heddle/run/eager/muon.h"
#include "heddle/run/eager/thread_group.h"
#include "heddle/run/models/decoder.h"

namespace heddle::run {

at::Tensor EagerTokenCount(const Model& model, const at::Tensor& labels) {
  if (model.numerics.loss_divisor == LossDivisor::kAllTokens)
    return at::full({}, labels.numel(), labels.options());
  // Without a label that counts, the loss is 0.
  return at::sum(at::ne(labels, kIgnoredLabel)).clamp_min(1);
}

std::vector<at::Tensor> EagerLocalInputs(const Model& model, std::span<const at::Tensor> inputs,
                                         const EagerPart& rows, const EagerPart& positions) {
  std::vector<at::Tensor> local;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool batch = model.inputs[i].role == InputRole::kBatch;
    at::Tensor input = batch ? EagerChunk(inputs[i], 0, rows.parts, rows.part) : inputs[i];
    // Positions of documents select rows of the whole rotation table.
    bool table = model.inputs[i].name.starts_with("rope") || model.inputs[i].name == kPositionIds;
    bool has_positions = batch || (table && !model.batch.documents);
    if (has_positions && positions.parts > 1) {
      int64_t dim = batch ? 1 : 0;
      at::Tensor own =
          EagerPositions(input.size(dim), positions.parts, positions.part, positions.head_tail);
      input = input.index_select(dim, own.to(input.device()));
    }
    local.push_back(batch ? input.contiguous() : input);
  }
  return local;
}

std::vector<at::Tensor> EagerMicroBatch(const Model& model, std::span<const at::Tensor> inputs,
                                        int64_t count, int64_t micro_batch) {
  std::vector<at::Tensor> rows(inputs.begin(), inputs.end());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (model.inputs[i].role != InputRole::kBatch) continue;
    int64_t size = rows[i].size(0) / count;
    rows[i] = rows[i].narrow(0, micro_batch * size, size);
  }
  return rows;
}

std::vector<at::Tensor> EagerGradients(const at::Tensor& loss, std::span<const at::Tensor> params) {
  torch::autograd::variable_list trained;
  for (const at::Tensor& param : params) {
    if (param.requires_grad()) trained.push_back(param);
  }
  torch::autograd::variable_list found =
      torch::autograd::grad({loss}, trained, {at::ones_like(loss)});
  std::vector<at::Tensor> grads(params.size());
  for (size_t i = 0, next = 0; i < params.size(); ++i) {
    if (params[i].requires_grad()) grads[i] = found[next++];
  }
  return grads;
}

std::vector<at::Tensor> EagerAdded(std::vector<at::Tensor> sum, std::vector<at::Tensor> grads,
                                   std::optional<at::ScalarType> reduce_type) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    if (reduce_type) grads[i] = grads[i].to(*reduce_type);
    if (!sum.empty()) grads[i] = at::add(sum[i], grads[i]);
  }
  return grads;
}

at::Tensor EagerLoss(const std::vector<std::vector<at::Tensor>>& by_micro_batch, int64_t batches,
                     const Reducer& reducer) {
  const size_t in_batch = by_micro_batch.size() / static_cast<size_t>(batches);
  at::Tensor sum;
  at::Tensor of_batch;
  for (size_t b = 0; b < by_micro_batch.size(); ++b) {
    at::Tensor loss = reducer.Reduce(by_micro_batch[b], ReduceOp::kSum, /*rows=*/false).squeeze(0);
    of_batch = b % in_batch == 0 ? loss : at::add(of_batch, loss);
    if ((b + 1) % in_batch == 0) sum = sum.defined() ? at::add(sum, of_batch) : of_batch;
  }
  return sum;
}

std::vector<EagerGroup> EagerGroups(const DataParallelOptions& options) {
  const int64_t every = options.reduce_every > 0 ? options.reduce_every : options.micro_batches;
  std::vector<EagerGroup> groups;
  for (int64_t batch = 0; batch < options.batches; ++batch) {
    for (int64_t first = 0; first < options.micro_batches; first += every) {
      int64_t end = std::min(first + every, options.micro_batches);
      int64_t before = batch * options.micro_batches;
      groups.push_back({before + first, before + end, end == options.micro_batches});
    }
  }
  return groups;
}

std::vector<ParamSpec> EagerSpecs(const Model& model, const std::vector<int64_t>& coordinates) {
  std::vector<ParamSpec> specs = model.params;
  for (size_t i = 0; i < coordinates.size(); ++i)
    specs[i].unit += fmt::format("@{}", coordinates[i]);
  return specs;
}

EagerDataParallel::EagerDataParallel(const Model& model, std::span<const at::Tensor> params,
                                     const DataParallelOptions& options)
    : model_(model),
      options_(options),
      state_(EagerSpecs(model, options.coordinates), params, {options.replicate, options.shard},
             options.reducer, options.reduce_type, options.optimizer) {}

void EagerDataParallel::RunRank(int64_t rank, std::span<const at::Tensor> params,
                                std::span<const at::Tensor> inputs, const at::Tensor& count,
                                const EagerGroup& group, RankStep& step) const {
  const int64_t all = options_.batches * options_.micro_batches;
  for (int64_t b = group.first; b < group.end; ++b) {
    StepResult ran = model_.loss_sum(
        params, EagerLocalInputs(model_, EagerMicroBatch(model_, inputs, all, b), {ranks(), rank}));
    at::Tensor loss = at::div(ran.loss, count);
    std::vector<at::Tensor> grads = EagerGradients(loss, params);
    step.losses.push_back(loss.detach().view({1}));
    step.changes.insert(step.changes.end(), ran.changes.begin(), ran.changes.end());
    if (options_.micro_batches > 1)
      grads = EagerAdded(std::move(step.grads), std::move(grads), options_.reduce_type);
    step.grads = std::move(grads);
  }
}

void EagerDataParallel::RunGroup(const EagerGroup& group, std::span<const at::Tensor> inputs,
                                 const at::Tensor& count, std::vector<RankStep>& ran) {
  for (int64_t replica = 0; replica < options_.replicate; ++replica) {
    // All ranks of a replica gather the same parameters.
    std::vector<at::Tensor> params = state_.Gather(replica);
    int64_t threads = std::min(options_.threads, options_.shard);
    ThreadGroup(threads, options_.reducer).Run([&](int64_t thread) {
      for (int64_t part = thread; part < options_.shard; part += threads) {
        int64_t rank = replica * options_.shard + part;
        RunRank(rank, params, inputs, count, group, ran[static_cast<size_t>(rank)]);
      }
    });
  }
  at::NoGradGuard no_grad;
  std::vector<std::vector<at::Tensor>> grads_by_rank;
  for (RankStep& rank : ran) grads_by_rank.push_back(std::exchange(rank.grads, {}));
  state_.Reduce(std::move(grads_by_rank));
  if (group.ends_batch) state_.EndBatch();
}

EagerStep EagerDataParallel::Step(std::span<const at::Tensor> inputs, double lr, int64_t step) {
  at::Tensor count = EagerTokenCount(model_, inputs.back());
  std::vector<RankStep> ran(static_cast<size_t>(ranks()));
  state_.BeginStep();
  for (const EagerGroup& group : EagerGroups(options_)) RunGroup(group, inputs, count, ran);
  at::NoGradGuard no_grad;
  std::vector<std::vector<at::Tensor>> losses(ran[0].losses.size());
  std::map<size_t, at::Tensor> seen;
  for (const RankStep& rank : ran) {
    for (size_t b = 0; b < losses.size(); ++b) losses[b].push_back(rank.losses[b]);
    // Counts: their sum is exact in any order.
    for (const BufferChange& change : rank.changes) {
      at::Tensor& all = seen[change.input];
      all = all.defined() ? at::add(all, change.seen) : change.seen;
    }
  }
  EagerStep result;
  for (const auto& [input, all] : seen)
    result.buffers[input] = model_.buffer_rule(inputs[input], all);
  result.loss = EagerLoss(losses, options_.batches, options_.reducer);
  for (int64_t replica = 0; replica < options_.replicate; ++replica) {
    at::Tensor norm = ClipNorm(replica);
    if (replica == 0) result.grad_norm = norm;
    UpdateMatrices(replica, norm, lr);
    for (int64_t part = 0; part < options_.shard; ++part)
      state_.Update(replica * options_.shard + part, norm, lr, step);
  }
  return result;
}

void EagerDataParallel::UpdateMatrices(int64_t replica, const at::Tensor& norm, double lr) {
  const OptimizerOptions& optimizer = options_.optimizer;
  for (size_t i = 0; i < model_.params.size(); ++i) {
    const ParamSpec& param = model_.params[i];
    if (!param.trainable || optimizer.RuleOf(param) != OptimizerName::kMuon) continue;
    at::Tensor change = EagerOrthogonalized(state_.Direction(replica, i, norm), optimizer);
    state_.Apply(replica, i, change, lr * optimizer.RateFactor(param.shape), lr);
  }
}

// Returns the norm of the norms of all gradients, as FSDP2 computes it: it sums squared norms over
// shards.
at::Tensor EagerDataParallel::ClipNorm(int64_t replica) const {
  std::vector<at::Tensor> squares;
  for (int64_t part = 0; part < options_.shard; ++part) {
    std::vector<at::Tensor> norms = state_.Norms(replica * options_.shard + part);
    std::erase_if(norms, [](const at::Tensor& norm) { return !norm.defined(); });
    at::Tensor all = at::stack(norms);
    squares.push_back(at::mul(all, all));
  }
  at::Tensor sums = options_.reducer.Reduce(squares, ReduceOp::kSum, /*rows=*/false);
  return at::linalg_vector_norm(at::sqrt(sums), 2);
}

}  // namespace heddle::run
