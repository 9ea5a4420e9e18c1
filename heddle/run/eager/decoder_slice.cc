#include "heddle/run/eager/decoder_slice.h"

#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/capture/scope.h"
#include "heddle/run/eager/ring_attention.h"
#include "heddle/run/eager/sharded_state.h"
#include "heddle/run/models/decoder.h"

namespace heddle::run {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A collective and the collective of its gradient. kSwap moves the split from dimension 1 - `dim`
// to dimension `dim`, and kSwapBack moves it back.
enum class Move : int64_t {
  kGather,
  kReduceScatter,
  kAllReduce,
  kSlice,
  kSwap,
  kSwapBack,
  kNothing
};

at::Tensor Slice(const GroupRank& rank, const at::Tensor& x, int64_t dim) {
  return EagerChunk(x, dim, rank.group->members(), rank.member).contiguous();
}

at::Tensor Do(Move move, const GroupRank& rank, const at::Tensor& x, int64_t dim) {
  switch (move) {
    case Move::kGather: return rank.group->Gather(rank.member, x, dim);
    case Move::kReduceScatter: return rank.group->ReduceScatter(rank.member, x, dim);
    case Move::kAllReduce: return rank.group->AllReduce(rank.member, x);
    case Move::kSlice: return Slice(rank, x, dim);
    case Move::kSwap: return Slice(rank, rank.group->Gather(rank.member, x, 1 - dim), dim);
    case Move::kSwapBack: return Slice(rank, rank.group->Gather(rank.member, x, dim), 1 - dim);
    case Move::kNothing: return x.view_as(x);
  }
  return {};
}

struct MoveBetweenRanks : torch::autograd::Function<MoveBetweenRanks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, GroupRank* rank,
                            Move there, Move back, int64_t dim) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(rank->group);
    context->saved_data["member"] = rank->member;
    context->saved_data["back"] = static_cast<int64_t>(back);
    context->saved_data["dim"] = dim;
    return Do(there, *rank, x, dim);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    GroupRank rank{reinterpret_cast<ThreadGroup*>(context->saved_data["group"].toInt()),
                   context->saved_data["member"].toInt()};
    auto back = static_cast<Move>(context->saved_data["back"].toInt());
    at::Tensor grad = Do(back, rank, grads[0], context->saved_data["dim"].toInt());
    return {grad, {}, {}, {}, {}};
  }
};

// Cross entropy with the classes split over ranks, for the labels on this rank.
struct SplitCrossEntropy : torch::autograd::Function<SplitCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& labels, GroupRank* rank) {
    at::Tensor most = at::amax(scores, {1}, /*keepdim=*/true);
    most = rank->group->AllReduce(rank->member, most, ReduceOp::kMax);
    at::Tensor shifted = at::sub(scores, most);
    at::Tensor sum = at::sum(at::exp(shifted), {1}, /*keepdim=*/true);
    sum = rank->group->AllReduce(rank->member, sum);
    at::Tensor logs = at::sub(shifted, at::log(sum));
    auto [loss, weight] =
        at::nll_loss_forward(logs, labels, std::nullopt, at::Reduction::Sum, kIgnoredLabel);
    context->save_for_backward({logs, labels, weight});
    context->saved_data["group"] = reinterpret_cast<int64_t>(rank->group);
    context->saved_data["member"] = rank->member;
    return loss;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list saved = context->get_saved_variables();
    auto* group = reinterpret_cast<ThreadGroup*>(context->saved_data["group"].toInt());
    at::Tensor grad = at::nll_loss_backward(grads[0], saved[0], saved[1], std::nullopt,
                                            at::Reduction::Sum, kIgnoredLabel, saved[2]);
    at::Tensor sum = at::sum(grad, {1}, /*keepdim=*/true);
    sum = group->AllReduce(context->saved_data["member"].toInt(), sum);
    return {at::sub(grad, at::mul(at::exp(saved[0]), sum)), {}, {}};
  }
};

// Sends rows to the ranks of their experts (`there`), or back. Each direction is the other's
// gradient.
struct MoveRows : torch::autograd::Function<MoveRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& counts, GroupRank* rank, bool there) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(rank->group);
    context->saved_data["member"] = rank->member;
    context->saved_data["there"] = there;
    context->saved_data["counts"] = counts;
    return Go(*rank, rows, counts, there);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    GroupRank rank{reinterpret_cast<ThreadGroup*>(context->saved_data["group"].toInt()),
                   context->saved_data["member"].toInt()};
    at::Tensor counts = context->saved_data["counts"].toTensor();
    return {Go(rank, grads[0], counts, !context->saved_data["there"].toBool()), {}, {}, {}};
  }
  static at::Tensor Go(const GroupRank& rank, const at::Tensor& rows, const at::Tensor& counts,
                       bool there) {
    return there ? rank.group->ToExperts(rank.member, rows, counts)
                 : rank.group->FromExperts(rank.member, rows, counts);
  }
};

// Indices into a table of which this rank stores `rows` rows from `begin` on, and a mask of the
// indices that other ranks store.
struct Lookup {
  at::Tensor shifted;
  at::Tensor elsewhere;
};
Lookup LookUp(const at::Tensor& numbers, int64_t begin, int64_t rows) {
  at::Tensor elsewhere = at::bitwise_or(at::lt(numbers, begin), at::ge(numbers, begin + rows));
  return {at::sub(numbers, begin), elsewhere};
}

// Returns the position at which the part of a rank begins.
int64_t BeginOf(int64_t whole, int64_t parts, int64_t part) {
  return std::min(whole, (whole + parts - 1) / parts * part);
}

}  // namespace

bool IsExpertStack(std::string_view param) {
  return param.find(".inner_experts.") != std::string_view::npos;
}

std::optional<int64_t> TensorSplitDim(std::string_view param, bool own_tokens) {
  for (std::string_view whole : {"norm.weight", "norm.bias", "_output.bias"}) {
    if (param.ends_with(whole)) return std::nullopt;
  }
  if (param == "position_embeddings.weight") return std::nullopt;
  if (IsAdapter(param)) {
    // Ranks have columns of these weights, and rows of the others.
    bool columns = param.find(".wo.") != std::string_view::npos ||
                   param.find(".w2.") != std::string_view::npos;
    if (param.ends_with(kLoraA)) return columns ? std::optional<int64_t>(1) : std::nullopt;
    return columns ? std::nullopt : std::optional<int64_t>(0);
  }
  if (param.ends_with(".wq_a.weight") || param.ends_with(".wkv_a.weight")) return std::nullopt;
  if (param.find(".router.gate.") != std::string_view::npos) return std::nullopt;
  if (own_tokens && param.find(".moe.") != std::string_view::npos) return std::nullopt;
  if (IsExpertStack(param)) return param.ends_with(".w2_EDF") ? 2 : 1;
  return param.ends_with(".wo.weight") || param.ends_with(".w2.weight") ? 1 : 0;
}

bool DecoderSlice::SumsGradient(std::string_view param) const {
  if (TensorSplitDim(param, options_.own_tokens) || IsExpertStack(param)) return false;
  bool inside = IsAdapter(param) || param.find(".attention.") != std::string_view::npos ||
                param.find(".moe.") != std::string_view::npos;
  // A norm of the residual stream sees this rank's positions with sequence parallelism, all
  // otherwise.
  return inside || options_.sequence_parallel;
}

at::Tensor DecoderSlice::Enter(const at::Tensor& x) {
  // One rank reads `x` itself, so that the gradients of its uses are added in the order of one
  // rank.
  if (rank_.group->members() == 1) return x;
  if (options_.sequence_parallel)
    return MoveBetweenRanks::apply(x, &rank_, Move::kGather, Move::kReduceScatter, 1);
  return MoveBetweenRanks::apply(x, &rank_, Move::kNothing, Move::kAllReduce, 1);
}

at::Tensor DecoderSlice::Leave(const at::Tensor& partial) {
  if (options_.sequence_parallel)
    return MoveBetweenRanks::apply(partial, &rank_, Move::kReduceScatter, Move::kGather, 1);
  return MoveBetweenRanks::apply(partial, &rank_, Move::kAllReduce, Move::kNothing, 1);
}

// One sequence is split by position, several are split by row.
at::Tensor DecoderSlice::OwnTokens(const at::Tensor& x) {
  int64_t dim = x.size(0) == 1 ? 1 : 0;
  if (!options_.sequence_parallel)
    return MoveBetweenRanks::apply(x, &rank_, Move::kSlice, Move::kGather, dim);
  return dim == 1 ? x : MoveBetweenRanks::apply(x, &rank_, Move::kSwap, Move::kSwapBack, dim);
}

at::Tensor DecoderSlice::AllTokens(const at::Tensor& own, bool whole_sequences) {
  int64_t dim = whole_sequences ? 0 : 1;
  if (!options_.sequence_parallel)
    return MoveBetweenRanks::apply(own, &rank_, Move::kGather, Move::kSlice, dim);
  if (!whole_sequences) return own;
  return MoveBetweenRanks::apply(own, &rank_, Move::kSwapBack, Move::kSwap, dim);
}

at::Tensor DecoderSlice::Embed(const ModelWeights& weights, const at::Tensor& tokens) {
  ScopeGuard scope("tok_embeddings");
  at::Tensor table = weights("weight");
  Lookup at_rank =
      LookUp(tokens, BeginOf(model_.config.vocab_size, rank_.group->members(), rank_.member),
             table.size(0));
  at::Tensor rows = at::embedding(table, at::masked_fill(at_rank.shifted, at_rank.elsewhere, 0));
  return at::masked_fill(rows, at_rank.elsewhere.unsqueeze(-1), 0);
}

at::Tensor DecoderSlice::Mixture(const ModelWeights& weights, const at::Tensor& x, int64_t layer) {
  if (!options_.own_tokens) return Leave(Moe(weights, model_.config, Enter(x), layer));
  at::Tensor own = OwnTokens(x);
  return AllTokens(Moe(weights, model_.config, own, layer), x.size(0) != 1);
}

at::Tensor DecoderSlice::Loss(const at::Tensor& logits, const at::Tensor& labels) {
  if (!options_.split_loss)
    return SummedLoss(MoveBetweenRanks::apply(logits, &rank_, Move::kGather, Move::kSlice, 2),
                      labels, model_.numerics.z_loss);
  Lookup at_rank = LookUp(labels.flatten(),
                          BeginOf(model_.config.vocab_size, rank_.group->members(), rank_.member),
                          logits.size(2));
  return SplitCrossEntropy::apply(
      Widened(logits).flatten(0, 1),
      at::masked_fill(at_rank.shifted, at_rank.elsewhere, kIgnoredLabel), &rank_);
}

StepResult DecoderSlice::LossSum(std::span<const at::Tensor> params,
                                 std::span<const at::Tensor> inputs) {
  const ModelConfig& config = model_.config;
  std::vector<at::Tensor> own(params.begin(), params.end());
  for (size_t i = 0; i < own.size(); ++i) {
    if (!SumsGradient(model_.params[i].name)) continue;
    // Every rank has the gradient of its own tokens. They are summed in the compute type.
    own[i] = MoveBetweenRanks::apply(own[i].to(ToScalarType(model_.numerics.compute)), &rank_,
                                     Move::kNothing, Move::kAllReduce, 0);
  }
  ModelWeights weights(model_.params, own, model_.inputs, inputs, model_.numerics);
  if (options_.experts) {
    weights.SpreadExperts([this](const at::Tensor& rows, const at::Tensor& counts,
                                 const ExpertProducts& products) {
      GroupRank& rank = *options_.experts;
      at::Tensor there = MoveRows::apply(rows, counts, &rank, /*there=*/true);
      at::Tensor ends = at::cumsum(rank.group->ExpertCounts(rank.member, counts), 0);
      return MoveRows::apply(products(there, ends.to(at::kInt)), counts, &rank, /*there=*/false);
    });
  }
  if (options_.context) {
    weights.ReplaceAttention([this](const AttentionInputs& inputs) {
      const ContextSplit& split = options_.context_split;
      if (split.ring) return RingAttention(*options_.context, split.head_tail, inputs);
      return ContextAttention(*options_.context, options_.context_split, inputs);
    });
  }
  if (options_.context && options_.context_split.latents) {
    weights.GatherLatents(
        [this](const at::Tensor& latents) { return GatherLatents(*options_.context, latents); });
  }
  at::Tensor x = Leave(Embed(weights, inputs[inputs.size() - 2]));
  x = FinishEmbedding(weights, config, x, [this](const at::Tensor& rows) {
    if (!options_.sequence_parallel) return rows;
    return EagerChunk(rows, rows.dim() - 2, rank_.group->members(), rank_.member);
  });
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    ScopeGuard scope(fmt::format("layers.{}", layer));
    x = AddPart(weights, config, "attention", x, [&](const at::Tensor& y) {
      return Leave(config.family->attention(weights, config, Enter(y), layer));
    });
    x = AddPart(weights, config, "ffn", x, [&](const at::Tensor& y) {
      return config.is_moe_layer(layer)
                 ? Mixture(weights, y, layer)
                 : Leave(config.family->feed_forward(weights, "feed_forward", Enter(y)));
    });
  }
  x = Enter(Norm(weights, config, "norm", x));
  ScopeGuard scope(config.tied ? "tok_embeddings" : "output");
  at::Tensor logits = CappedLogits(config, at::linear(x, weights("weight")));
  at::Tensor loss = Loss(logits, inputs.back());
  return {weights.WithLossTerms(loss), weights.TakeChanges()};
}

}  // namespace heddle::run
