#include "heddle/run/eager/context_attention.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include "heddle/run/eager/attention_calls.h"
#include "heddle/run/eager/sharded_state.h"
#include "heddle/run/layers/layers.h"

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

// Queries stay split by position.
struct Gathered : torch::autograd::Function<Gathered> {
  // Gathers all positions, unless this rank has them, and sorts them.
  static at::Tensor Gather(const GroupRank& rank, const ContextSplit& split,
                           const at::Tensor& own) {
    at::Tensor all = split.latents ? own : rank.group->Gather(rank.member, own, kPositions);
    int64_t part = all.size(kPositions) / rank.group->members();
    at::Tensor order = at::argsort(AllPositions(rank, split.head_tail, part));
    return all.index_select(kPositions, order.to(all.device()));
  }
  // Sums the gradients of all positions, and returns those of this rank's positions. Gradients of
  // keys and values from latents are not summed here.
  static at::Tensor Reduce(const GroupRank& rank, const ContextSplit& split,
                           const at::Tensor& grad) {
    int64_t part = grad.size(kPositions) / rank.group->members();
    at::Tensor positions = AllPositions(rank, split.head_tail, part);
    at::Tensor in_order = grad.index_select(kPositions, positions.to(grad.device()));
    if (split.latents) return Stored(in_order);
    // Sums tensors as they are stored: positions before heads.
    at::Tensor sum =
        rank.group->ReduceScatter(rank.member, Widened(in_order).transpose(kHeads, kPositions), 1);
    return sum.to(grad.scalar_type()).transpose(kHeads, kPositions);
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const std::optional<at::Tensor>& places, const GroupRank* rank,
                            ContextSplit split, std::optional<double> scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor documents = places.value_or(at::Tensor());
    at::Tensor keys = Gather(*rank, split, key);
    at::Tensor values = Gather(*rank, split, value);
    std::vector<KernelCall> calls = CallsFor(
        PiecesOf(*rank, split.head_tail, query.size(kPositions)), query.size(0), documents);
    std::vector<at::Tensor> outs;
    std::vector<at::Tensor> logsumexps;
    for (const KernelCall& call : calls) {
      auto [out, logsumexp] = Attend(call, query, keys, values, scale);
      outs.push_back(out);
      logsumexps.push_back(logsumexp);
    }
    at::Tensor out = Stored(Joined(calls, outs));
    context->save_for_backward({query, key, value, out, Joined(calls, logsumexps), documents});
    context->saved_data["group"] = reinterpret_cast<int64_t>(rank->group);
    context->saved_data["member"] = rank->member;
    context->saved_data["head_tail"] = split.head_tail;
    context->saved_data["latents"] = split.latents;
    context->saved_data["scale"] = scale;
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    GroupRank rank{reinterpret_cast<ThreadGroup*>(context->saved_data["group"].toInt()),
                   context->saved_data["member"].toInt()};
    ContextSplit split{.head_tail = context->saved_data["head_tail"].toBool(),
                       .latents = context->saved_data["latents"].toBool()};
    variable_list saved = context->get_saved_variables();
    at::Tensor keys = Gather(rank, split, saved[1]);
    at::Tensor values = Gather(rank, split, saved[2]);
    std::vector<KernelCall> calls = CallsFor(
        PiecesOf(rank, split.head_tail, saved[0].size(kPositions)), saved[0].size(0), saved[5]);
    std::vector<at::Tensor> queries;
    at::Tensor key_sum;
    at::Tensor value_sum;
    for (const KernelCall& call : calls) {
      auto [query, key, value] =
          AttendBackward(call, grads[0], {saved[0], saved[3], saved[4]}, keys, values,
                         context->saved_data["scale"].toOptional<double>());
      queries.push_back(query);
      auto add = [&](at::Tensor& sum, const at::Tensor& grad) {
        at::Tensor all = call.Padded(Widened(grad), keys);
        sum = sum.defined() ? sum + all : all;
      };
      add(key_sum, key);
      add(value_sum, value);
    }
    // A rank rounds its sum.
    return {Stored(Joined(calls, queries)),
            Reduce(rank, split, key_sum.to(saved[1].scalar_type())),
            Reduce(rank, split, value_sum.to(saved[2].scalar_type())),
            {},
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

struct AllLatents : torch::autograd::Function<AllLatents> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const GroupRank* rank) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(rank->group);
    context->saved_data["member"] = rank->member;
    return rank->group->Gather(rank->member, x, 1);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    auto* group = reinterpret_cast<ThreadGroup*>(context->saved_data["group"].toInt());
    int64_t member = context->saved_data["member"].toInt();
    at::Tensor sum = group->ReduceScatter(member, Widened(grads[0]), 1);
    return {sum.to(grads[0].scalar_type()), {}};
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

// Attends within the documents of all positions, by autograd.
at::Tensor AttendWhole(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const at::Tensor& documents, std::optional<double> scale) {
  auto attend = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    if (q.is_cpu()) {
      return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
          q, k, v, 0.0, /*is_causal=*/true, std::nullopt, scale));
    }
    return std::get<0>(
        at::_scaled_dot_product_flash_attention(q, k, v, 0.0, /*is_causal=*/true, false, scale));
  };
  if (!documents.defined()) return attend(query, key, value);
  std::vector<KernelCall> calls =
      CallsFor({at::arange(query.size(kPositions))}, query.size(0), documents);
  // Divides the queries instead of selecting some, so that their gradients are joined, not added.
  std::vector<at::Tensor> rows = query.split(1);
  std::vector<at::Tensor> own;
  for (int64_t row = 0; row < query.size(0); ++row) {
    std::vector<int64_t> sizes;
    for (const KernelCall& call : calls) {
      if (call.row == row) sizes.push_back(call.positions.numel());
    }
    for (at::Tensor& part : rows[static_cast<size_t>(row)].split_with_sizes(sizes, kPositions))
      own.push_back(std::move(part));
  }
  std::vector<at::Tensor> outs;
  for (size_t i = 0; i < calls.size(); ++i) {
    at::Tensor keys = calls[i].Seen(key);
    at::Tensor values = calls[i].Seen(value);
    outs.push_back(calls[i].queries.empty()
                       ? attend(own[i], keys, values)
                       : std::get<0>(AttendDocuments(calls[i], own[i], keys, values, scale)));
  }
  return Joined(calls, outs);
}

at::Tensor AttendByHeads(const GroupRank& rank, const AttentionInputs& inputs) {
  int64_t members = rank.group->members();
  auto swapped = [&](const at::Tensor& x) {
    at::Tensor enough =
        x.size(kHeads) % members == 0 ? x : Repeat::apply(x, members / x.size(kHeads));
    return Swap::apply(enough, &rank, /*to_heads=*/true);
  };
  at::Tensor documents;
  if (inputs.documents.defined())
    documents = rank.group->Gather(rank.member, inputs.documents, /*dim=*/1);
  at::Tensor out = AttendWhole(swapped(inputs.query), swapped(inputs.key), swapped(inputs.value),
                               documents, inputs.scale);
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
                            const AttentionInputs& inputs) {
  if (split.heads) return AttendByHeads(rank, inputs);
  std::optional<at::Tensor> places;
  if (inputs.documents.defined()) places = inputs.documents;
  return Gathered::apply(inputs.query, inputs.key, inputs.value, places, &rank, split,
                         inputs.scale);
}

at::Tensor GatherLatents(const GroupRank& rank, const at::Tensor& latents) {
  return AllLatents::apply(latents, &rank);
}

}  // namespace heddle::run
