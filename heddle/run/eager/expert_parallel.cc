#include "heddle/run/eager/expert_parallel.h"

#include <deque>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "heddle/run/eager/decoder_slice.h"
#include "heddle/run/eager/muon.h"
#include "heddle/run/eager/thread_group.h"

namespace heddle::run {

EagerExpertParallel::EagerExpertParallel(const Model& model, std::span<const at::Tensor> params,
                                         const ExpertParallelOptions& options)
    : model_(model), options_(options) {
  const DataParallelOptions& data = options.tensor.data;
  std::vector<ParamSpec> specs[2];
  for (const ParamSpec& spec : EagerSpecs(model, data.coordinates)) {
    // Experts that are not shared are in the payload of their unit.
    bool stack = options.expert > 1 && IsExpertStack(spec.name);
    is_stack_.push_back(stack);
    place_.push_back(specs[stack].size());
    is_whole_.push_back(!stack && !TensorSplitDim(spec.name, own_tokens()));
    specs[stack].push_back(spec);
  }
  auto add = [&](bool stacks, const StateRanks& ranks, std::vector<ShardedState>& to,
                 auto&& part_of) {
    std::vector<at::Tensor> own;
    for (size_t i = 0; i < params.size(); ++i) {
      if (is_stack_[i] == stacks) own.push_back(part_of(i).contiguous());
    }
    to.emplace_back(specs[stacks], own, ranks, data.reducer, data.reduce_type, data.optimizer);
  };
  auto slice_of = [&](const at::Tensor& whole, size_t i, int64_t slice) {
    std::optional<int64_t> dim = TensorSplitDim(model.params[i].name, own_tokens());
    return dim ? EagerChunk(whole, *dim, options.tensor.tensor, slice) : whole;
  };
  // Among the ranks of a shard group, the ranks that share experts are consecutive.
  int64_t context = options.tensor.context;
  int64_t inner = options.expert / (own_tokens() ? options.tensor.tensor : 1);
  bool shares = inner > 1;
  if (!shares) inner = context;
  for (int64_t slice = 0; slice < options.tensor.tensor; ++slice)
    add(false, {data.replicate, data.shard, inner, context}, dense_,
        [&](size_t i) { return slice_of(params[i], i, slice); });
  for (int64_t piece = 0; !specs[1].empty() && piece < pieces(); ++piece) {
    add(true, {data.replicate, copies(), shares ? 1 : context}, stacks_, [&](size_t i) {
      at::Tensor experts = EagerChunk(params[i], 0, options.expert, expert_rank(piece));
      return slice_of(experts, i, slice(piece));
    });
  }
}

void EagerExpertParallel::Run(int64_t replica, const EagerGroup& micro_batches,
                              std::span<const at::Tensor> inputs, const at::Tensor& count,
                              StepParts& parts) const {
  const TensorParallelOptions& tensor = options_.tensor;
  const int64_t parts_of_step = tensor.data.batches * tensor.data.micro_batches;
  int64_t batch_ranks = tensor.data.replicate * tensor.data.shard / tensor.context;
  std::vector<std::vector<at::Tensor>> dense;
  std::vector<std::vector<at::Tensor>> stacks;
  for (const ShardedState& state : dense_) dense.push_back(state.Gather(replica));
  for (const ShardedState& state : stacks_) stacks.push_back(state.Gather(replica));
  // Makes one group for every `members` consecutive ranks.
  auto make_groups = [&](int64_t members) {
    std::deque<ThreadGroup> made;
    for (int64_t i = 0; i < replica_ranks() / members; ++i)
      made.emplace_back(members, tensor.data.reducer);
    return made;
  };
  std::deque<ThreadGroup> slices = make_groups(tensor.tensor);
  std::deque<ThreadGroup> groups = make_groups(options_.expert);
  std::deque<ThreadGroup> contexts = make_groups(tensor.context);
  auto group = [&](int64_t member) {
    int64_t width = options_.expert_tensor;
    return static_cast<size_t>(member / pieces() * width + member % width);
  };
  auto work = [&](int64_t member) {
    int64_t rank = replica * replica_ranks() + member;
    std::vector<at::Tensor> params;
    for (size_t i = 0; i < is_stack_.size(); ++i) {
      const at::Tensor& whole = is_stack_[i] ? stacks[static_cast<size_t>(piece(rank))][place_[i]]
                                             : dense[static_cast<size_t>(slice(rank))][place_[i]];
      params.push_back(whole.detach().requires_grad_(whole.requires_grad()));
    }
    SliceOptions options;
    options.tensor = {&slices[static_cast<size_t>(member / tensor.tensor)], slice(rank)};
    options.experts = GroupRank{&groups[group(member)], expert_rank(rank)};
    options.own_tokens = own_tokens();
    options.sequence_parallel = tensor.sequence_parallel && tensor.tensor > 1;
    options.split_loss = tensor.split_loss && tensor.tensor > 1;
    options.context_split = tensor.context_split;
    int64_t position = dense_at(rank) % tensor.context;
    if (tensor.context > 1) {
      int64_t at = member / (tensor.context * tensor.tensor) * tensor.tensor + slice(rank);
      options.context = GroupRank{&contexts[static_cast<size_t>(at)], position};
    }
    auto r = static_cast<size_t>(rank);
    std::vector<at::Tensor> grads;
    for (int64_t b = micro_batches.first; b < micro_batches.end; ++b) {
      std::vector<at::Tensor> local =
          EagerLocalInputs(model_, EagerMicroBatch(model_, inputs, parts_of_step, b),
                           {batch_ranks, dense_at(rank) / tensor.context},
                           {tensor.context, position, tensor.context_split.head_tail});
      StepResult ran = DecoderSlice(model_, options).LossSum(params, local);
      at::Tensor loss = at::div(ran.loss, count);
      parts.losses[static_cast<size_t>(b)][r] = loss.detach().view({1});
      parts.changes[r].insert(parts.changes[r].end(), ran.changes.begin(), ran.changes.end());
      std::vector<at::Tensor> own = EagerGradients(loss, params);
      grads = tensor.data.micro_batches > 1
                  ? EagerAdded(std::move(grads), std::move(own), tensor.data.reduce_type)
                  : std::move(own);
    }
    auto& own_dense = parts.dense[static_cast<size_t>(slice(rank))];
    auto& own_stacks = parts.stacks[static_cast<size_t>(piece(rank))];
    for (size_t i = 0; i < grads.size(); ++i) {
      (is_stack_[i] ? own_stacks[static_cast<size_t>(stack_at(rank))]
                    : own_dense[static_cast<size_t>(dense_at(rank))])
          .push_back(grads[i]);
    }
  };
  ThreadGroup all(replica_ranks(), tensor.data.reducer);
  all.Run([&](int64_t member) {
    try {
      work(member);
    } catch (...) {
      // Tells the other ranks not to wait for this one.
      for (std::deque<ThreadGroup>* list : {&slices, &groups, &contexts}) {
        for (ThreadGroup& group : *list) group.GiveUp(std::current_exception());
      }
      throw;
    }
  });
}

void EagerExpertParallel::Reduce(StepParts& parts, bool ends_batch) {
  at::NoGradGuard no_grad;
  for (size_t s = 0; s < dense_.size(); ++s) dense_[s].Reduce(std::move(parts.dense[s]));
  for (size_t e = 0; e < stacks_.size(); ++e) stacks_[e].Reduce(std::move(parts.stacks[e]));
  if (!ends_batch) return;
  for (ShardedState& state : dense_) state.EndBatch();
  for (ShardedState& state : stacks_) state.EndBatch();
}

EagerStep EagerExpertParallel::Step(std::span<const at::Tensor> inputs, double lr, int64_t step) {
  const TensorParallelOptions& tensor = options_.tensor;
  at::Tensor count = EagerTokenCount(model_, inputs.back());
  StepParts parts;
  auto places = [](size_t lists, int64_t ranks) {
    return Grads(lists, std::vector<std::vector<at::Tensor>>(static_cast<size_t>(ranks)));
  };
  parts.losses.assign(static_cast<size_t>(tensor.data.batches * tensor.data.micro_batches),
                      std::vector<at::Tensor>(static_cast<size_t>(ranks())));
  parts.changes.resize(static_cast<size_t>(ranks()));
  for (ShardedState& state : dense_) state.BeginStep();
  for (ShardedState& state : stacks_) state.BeginStep();
  for (const EagerGroup& group : EagerGroups(tensor.data)) {
    parts.dense = places(dense_.size(), tensor.data.replicate * tensor.data.shard);
    parts.stacks = places(static_cast<size_t>(pieces()), tensor.data.replicate * copies());
    for (int64_t replica = 0; replica < tensor.data.replicate; ++replica)
      Run(replica, group, inputs, count, parts);
    Reduce(parts, group.ends_batch);
  }
  at::NoGradGuard no_grad;
  EagerStep result;
  std::map<size_t, at::Tensor> seen;
  std::vector<std::vector<at::Tensor>> losses(parts.losses.size());
  bool split_loss = tensor.split_loss && tensor.tensor > 1;
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    auto r = static_cast<size_t>(rank);
    // If the loss is not split, every slice has all of it.
    for (size_t b = 0; b < losses.size() && (split_loss || slice(rank) == 0); ++b)
      losses[b].push_back(parts.losses[b][r]);
    // Counts: their sum is exact in any order. Slices that split each expert see the same tokens.
    if (!own_tokens() && slice(rank) != 0) continue;
    for (const BufferChange& change : parts.changes[r]) {
      at::Tensor& all = seen[change.input];
      all = all.defined() ? at::add(all, change.seen) : change.seen;
    }
  }
  result.loss = EagerLoss(losses, tensor.data.batches, tensor.data.reducer);
  for (const auto& [input, all] : seen)
    result.buffers[input] = model_.buffer_rule(inputs[input], all);
  for (int64_t replica = 0; replica < tensor.data.replicate; ++replica) {
    at::Tensor norm = ClipNorm(replica);
    if (replica == 0) result.grad_norm = norm;
    UpdateMatrices(replica, norm, lr);
    for (ShardedState& state : dense_) {
      for (int64_t part = 0; part < tensor.data.shard; ++part)
        state.Update(replica * tensor.data.shard + part, norm, lr, step);
    }
    for (ShardedState& state : stacks_) {
      for (int64_t part = 0; part < copies(); ++part)
        state.Update(replica * copies() + part, norm, lr, step);
    }
  }
  return result;
}

// Stacks of experts are not matrices, so Muon does not update them.
void EagerExpertParallel::UpdateMatrices(int64_t replica, const at::Tensor& norm, double lr) {
  const OptimizerOptions& optimizer = options_.tensor.data.optimizer;
  for (size_t i = 0; i < model_.params.size(); ++i) {
    const ParamSpec& param = model_.params[i];
    if (!param.trainable || optimizer.RuleOf(param) != OptimizerName::kMuon) continue;
    std::vector<at::Tensor> slices;
    for (ShardedState& state : dense_) slices.push_back(state.Direction(replica, place_[i], norm));
    std::optional<int64_t> dim = TensorSplitDim(param.name, own_tokens());
    at::Tensor change = EagerOrthogonalized(dim ? at::cat(slices, *dim) : slices[0], optimizer);
    for (size_t s = 0; s < dense_.size(); ++s) {
      at::Tensor own =
          dim ? EagerChunk(change, *dim, options_.tensor.tensor, static_cast<int64_t>(s)) : change;
      dense_[s].Apply(replica, place_[i], own, lr * optimizer.RateFactor(param.shape), lr);
    }
  }
}

// Returns the norms of a rank's gradients; zero for gradients that the first slice counts.
at::Tensor EagerExpertParallel::Norms(int64_t rank) const {
  std::vector<at::Tensor> dense = dense_[static_cast<size_t>(slice(rank))].Norms(dense_at(rank));
  std::vector<at::Tensor> stacks;
  if (!stacks_.empty()) stacks = stacks_[static_cast<size_t>(piece(rank))].Norms(stack_at(rank));
  std::vector<at::Tensor> norms;
  for (size_t i = 0; i < is_stack_.size(); ++i) {
    at::Tensor norm = (is_stack_[i] ? stacks : dense)[place_[i]];
    if (!norm.defined()) continue;
    norms.push_back(is_whole_[i] && slice(rank) != 0 ? at::zeros({}, norm.options()) : norm);
  }
  return at::stack(norms);
}

// Returns the norm of the norms of all gradients: it sums squared norms over the ranks of a
// replica.
at::Tensor EagerExpertParallel::ClipNorm(int64_t replica) const {
  std::vector<at::Tensor> squares;
  for (int64_t member = 0; member < replica_ranks(); ++member) {
    at::Tensor norms = Norms(replica * replica_ranks() + member);
    squares.push_back(at::mul(norms, norms));
  }
  at::Tensor sums = options_.tensor.data.reducer.Reduce(squares, ReduceOp::kSum, /*rows=*/false);
  return at::linalg_vector_norm(at::sqrt(sums), 2);
}

}  // namespace heddle::run
