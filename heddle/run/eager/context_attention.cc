#include "heddle/run/eager/context_attention.h"

#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "heddle/run/eager/sharded_state.h"
#include "heddle/run/models/layers.h"

namespace heddle::run {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kHeads = 1;
constexpr int64_t kPositions = 2;

// Stores positions before heads, as attention does. Sums over both depend on it.
at::Tensor Stored(const at::Tensor& x) {
  return x.transpose(kHeads, kPositions).contiguous().transpose(kHeads, kPositions);
}

// The rank's positions as consecutive pieces: one, or head and tail.
std::vector<at::Tensor> PiecesOf(const GroupRank& rank, bool head_tail, int64_t own) {
  int64_t members = rank.group->members();
  at::Tensor positions = EagerPositions(own * members, members, rank.member, head_tail);
  return head_tail ? positions.chunk(2) : std::vector<at::Tensor>{positions};
}

at::Tensor AllPositions(const GroupRank& rank, bool head_tail, int64_t own) {
  std::vector<at::Tensor> all;
  int64_t members = rank.group->members();
  for (int64_t member = 0; member < members; ++member)
    all.push_back(EagerPositions(own * members, members, member, head_tail));
  return at::cat(all);
}

// The additive mask of queries for all keys up to the last query.
at::Tensor MaskOf(const at::Tensor& positions, const at::Tensor& like) {
  at::Tensor keys = at::arange(positions[-1].item<int64_t>() + 1);
  at::Tensor later = at::gt(keys.unsqueeze(0), positions.unsqueeze(1));
  at::Tensor none = at::zeros({}, like.options());
  return at::where(later, none - std::numeric_limits<double>::infinity(), none);
}

// Queries stay split by position.
struct Gathered : torch::autograd::Function<Gathered> {
  // Gathers all positions and sorts them.
  static at::Tensor Gather(const GroupRank& rank, bool head_tail, const at::Tensor& own) {
    at::Tensor all = rank.group->Gather(rank.member, own, kPositions);
    return all.index_select(kPositions,
                            at::argsort(AllPositions(rank, head_tail, own.size(kPositions))));
  }
  // Sums the gradients of all positions, and returns those of this rank's positions.
  static at::Tensor Reduce(const GroupRank& rank, bool head_tail, const at::Tensor& grad,
                           const at::Tensor& own) {
    at::Tensor in_order =
        grad.index_select(kPositions, AllPositions(rank, head_tail, own.size(kPositions)));
    // Sums tensors as they are stored: positions before heads.
    at::Tensor sum = rank.group->ReduceScatter(rank.member,
                                               Widened(in_order).transpose(kHeads, kPositions), 1);
    return sum.to(grad.scalar_type()).transpose(kHeads, kPositions);
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value, const GroupRank* rank,
                            bool head_tail, std::optional<double> scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor keys = Gather(*rank, head_tail, key);
    at::Tensor values = Gather(*rank, head_tail, value);
    std::vector<at::Tensor> outs;
    std::vector<at::Tensor> logsumexps;
    int64_t at = 0;
    for (const at::Tensor& piece : PiecesOf(*rank, head_tail, query.size(kPositions))) {
      at::Tensor mask = MaskOf(piece, query);
      auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          query.narrow(kPositions, at, piece.numel()), keys.narrow(kPositions, 0, mask.size(1)),
          values.narrow(kPositions, 0, mask.size(1)), 0.0, /*is_causal=*/false, mask, scale);
      outs.push_back(out);
      logsumexps.push_back(logsumexp);
      at += piece.numel();
    }
    at::Tensor out = Stored(at::cat(outs, kPositions));
    context->save_for_backward({query, key, value, out, at::cat(logsumexps, kPositions)});
    context->saved_data["group"] = reinterpret_cast<int64_t>(rank->group);
    context->saved_data["member"] = rank->member;
    context->saved_data["head_tail"] = head_tail;
    context->saved_data["scale"] = scale;
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    GroupRank rank{reinterpret_cast<ThreadGroup*>(context->saved_data["group"].toInt()),
                   context->saved_data["member"].toInt()};
    bool head_tail = context->saved_data["head_tail"].toBool();
    variable_list saved = context->get_saved_variables();
    at::Tensor keys = Gather(rank, head_tail, saved[1]);
    at::Tensor values = Gather(rank, head_tail, saved[2]);
    std::vector<at::Tensor> queries;
    at::Tensor key_sum;
    at::Tensor value_sum;
    int64_t at = 0;
    for (const at::Tensor& piece : PiecesOf(rank, head_tail, saved[0].size(kPositions))) {
      auto own = [&](const at::Tensor& x) { return x.narrow(kPositions, at, piece.numel()); };
      at::Tensor mask = MaskOf(piece, saved[0]);
      auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          own(grads[0]), own(saved[0]), keys.narrow(kPositions, 0, mask.size(1)),
          values.narrow(kPositions, 0, mask.size(1)), own(saved[3]), own(saved[4]), 0.0,
          /*is_causal=*/false, mask, context->saved_data["scale"].toOptional<double>());
      queries.push_back(query);
      auto add = [&](at::Tensor& sum, const at::Tensor& grad) {
        at::Tensor all = at::constant_pad_nd(Widened(grad),
                                             {0, 0, 0, keys.size(kPositions) - mask.size(1)});
        sum = sum.defined() ? sum + all : all;
      };
      add(key_sum, key);
      add(value_sum, value);
      at += piece.numel();
    }
    // A rank rounds its sum.
    return {Stored(at::cat(queries, kPositions)),
            Reduce(rank, head_tail, key_sum.to(saved[1].scalar_type()), saved[1]),
            Reduce(rank, head_tail, value_sum.to(saved[2].scalar_type()), saved[2]),
            {},
            {},
            {}};
  }
};

// Moves the split of a tensor from positions to heads, or back.
struct Swap : torch::autograd::Function<Swap> {
  static at::Tensor Do(const GroupRank& rank, const at::Tensor& x, bool to_heads) {
    at::Tensor all = rank.group->Gather(rank.member, x, to_heads ? kPositions : kHeads);
    return Stored(
        EagerChunk(all, to_heads ? kHeads : kPositions, rank.group->members(), rank.member));
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const GroupRank* rank,
                            bool to_heads) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(rank->group);
    context->saved_data["member"] = rank->member;
    context->saved_data["to_heads"] = to_heads;
    return Do(*rank, x, to_heads).clone();
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    GroupRank rank{reinterpret_cast<ThreadGroup*>(context->saved_data["group"].toInt()),
                   context->saved_data["member"].toInt()};
    return {Do(rank, grads[0], !context->saved_data["to_heads"].toBool()), {}, {}};
  }
};

// Repeats every head, and sums gradients in f32.
struct Repeat : torch::autograd::Function<Repeat> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t times) {
    context->saved_data["times"] = times;
    return x.repeat_interleave(times, kHeads);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    int64_t times = context->saved_data["times"].toInt();
    at::Tensor stored = grads[0].transpose(kHeads, kPositions).contiguous();
    at::Tensor sum = Widened(stored).unflatten(2, {-1, times}).sum(3);
    return {sum.to(grads[0].scalar_type()).transpose(kHeads, kPositions), {}};
  }
};

at::Tensor AttendByHeads(const GroupRank& rank, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& value, std::optional<double> scale) {
  int64_t members = rank.group->members();
  auto swapped = [&](const at::Tensor& x) {
    at::Tensor enough = x.size(kHeads) % members == 0
                            ? x
                            : Repeat::apply(x, members / x.size(kHeads));
    return Swap::apply(enough, &rank, /*to_heads=*/true);
  };
  at::Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      swapped(query), swapped(key), swapped(value), 0.0, /*is_causal=*/true, std::nullopt, scale));
  return Swap::apply(out, &rank, /*to_heads=*/false);
}

}  // namespace

at::Tensor EagerPositions(int64_t whole, int64_t parts, int64_t part, bool head_tail) {
  if (!head_tail) return EagerChunk(at::arange(whole), 0, parts, part);
  std::vector<at::Tensor> pieces = at::arange(whole).chunk(2 * parts);
  return at::cat(
      {pieces[static_cast<size_t>(part)], pieces[static_cast<size_t>(2 * parts - 1 - part)]});
}

at::Tensor ContextAttention(const GroupRank& rank, const ContextSplit& split,
                            const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            std::optional<double> scale) {
  if (split.heads) return AttendByHeads(rank, query, key, value, scale);
  return Gathered::apply(query, key, value, &rank, split.head_tail, scale);
}

}  // namespace heddle::run
