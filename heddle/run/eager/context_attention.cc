#include "heddle/run/eager/context_attention.h"

#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

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

// A call of the kernel: the queries of some rows with consecutive positions, and the keys from the
// first that they see to the position of the last query.
struct KernelCall {
  int64_t row = 0;
  int64_t rows = 0;
  // Where the queries begin on this rank.
  int64_t at = 0;
  at::Tensor positions;
  int64_t first = 0;

  int64_t end() const { return positions[-1].item<int64_t>() + 1; }
  at::Tensor Own(const at::Tensor& x) const {
    return x.narrow(0, row, rows).narrow(kPositions, at, positions.numel());
  }
  at::Tensor Seen(const at::Tensor& x) const {
    return x.narrow(0, row, rows).narrow(kPositions, first, end() - first);
  }
  // Zeros for the other keys and rows.
  at::Tensor Padded(const at::Tensor& grad, const at::Tensor& like) const {
    return at::constant_pad_nd(
        grad, {0, 0, first, like.size(kPositions) - end(), 0, 0, row, like.size(0) - row - rows});
  }
  // The additive mask.
  at::Tensor Mask(const at::Tensor& like) const {
    at::Tensor later = at::gt(at::arange(first, end()).unsqueeze(0), positions.unsqueeze(1));
    at::Tensor none = at::zeros({}, like.options());
    return at::where(later, none - std::numeric_limits<double>::infinity(), none);
  }
};

// The output and its logsumexp. The causal kernel for CUDA aligns the last query with the last key.
std::tuple<at::Tensor, at::Tensor> Attend(const KernelCall& call, const at::Tensor& query,
                                          const at::Tensor& keys, const at::Tensor& values,
                                          std::optional<double> scale) {
  if (query.is_cpu()) {
    return at::_scaled_dot_product_flash_attention_for_cpu(
        call.Own(query), call.Seen(keys), call.Seen(values), 0.0, /*is_causal=*/false,
        call.Mask(query), scale);
  }
  auto results = at::_scaled_dot_product_flash_attention(
      call.Own(query), call.Seen(keys), call.Seen(values), 0.0, /*is_causal=*/true, false, scale);
  return {std::get<0>(results), std::get<1>(results)};
}

// The tensors that backward reads.
struct Attended {
  at::Tensor query;
  at::Tensor out;
  at::Tensor logsumexp;
};
// Gradients of the call's queries, and of the keys and values that they see.
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttendBackward(
    const KernelCall& call, const at::Tensor& grad, const Attended& forward, const at::Tensor& keys,
    const at::Tensor& values, std::optional<double> scale) {
  at::Tensor query = call.Own(forward.query);
  at::Tensor out = call.Own(forward.out);
  at::Tensor logsumexp = call.Own(forward.logsumexp);
  if (query.is_cpu()) {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        call.Own(grad), query, call.Seen(keys), call.Seen(values), out, logsumexp, 0.0,
        /*is_causal=*/false, call.Mask(query), scale);
  }
  // The state of dropout, which is not used.
  at::Tensor seed = at::zeros({2}, query.options().dtype(at::kUInt64));
  at::Tensor offset = at::zeros({}, seed.options());
  return at::_scaled_dot_product_flash_attention_backward(
      call.Own(grad), query, call.Seen(keys), call.Seen(values), out, logsumexp.contiguous(), {},
      {}, query.size(kPositions), call.end() - call.first, 0.0, /*is_causal=*/true, seed, offset,
      scale);
}

// One call for each piece of the positions, or for each document in it and in each row.
std::vector<KernelCall> CallsFor(const std::vector<at::Tensor>& pieces, int64_t rows,
                                 const at::Tensor& documents) {
  std::vector<KernelCall> calls;
  for (int64_t row = 0; row < (documents.defined() ? rows : 1); ++row) {
    int64_t at = 0;
    for (const at::Tensor& piece : pieces) {
      if (!documents.defined()) {
        calls.push_back({0, rows, at, piece, 0});
        at += piece.numel();
        continue;
      }
      at::Tensor firsts = piece - documents[row].narrow(0, at, piece.numel());
      for (int64_t begin = 0; begin < piece.numel();) {
        auto first = firsts[begin].item<int64_t>();
        int64_t size = at::eq(firsts, first).sum().item<int64_t>();
        calls.push_back({row, 1, at + begin, piece.narrow(0, begin, size), first});
        begin += size;
      }
      at += piece.numel();
    }
  }
  return calls;
}

// Joins results of calls for consecutive queries of each row.
at::Tensor Joined(const std::vector<KernelCall>& calls, const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < calls.size(); ++i) {
    bool same = i > 0 && calls[i].row == calls[i - 1].row;
    if (same) {
      rows.back() = at::cat({rows.back(), parts[i]}, kPositions);
    } else {
      rows.push_back(parts[i]);
    }
  }
  return at::cat(rows);
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
  for (size_t i = 0; i < calls.size(); ++i)
    outs.push_back(attend(own[i], calls[i].Seen(key), calls[i].Seen(value)));
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
