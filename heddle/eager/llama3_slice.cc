#include "heddle/eager/llama3_slice.h"

#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_or.h>
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

#include "heddle/aten/dtype.h"
#include "heddle/capture/scope.h"
#include "heddle/eager/sharded_state.h"

namespace heddle {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A collective, and the one that carries its gradient.
struct Seat {
  Meeting* meeting;
  int64_t slice;
};
enum class Move : int64_t { kGather, kReduceScatter, kAllReduce, kSlice, kNothing };

at::Tensor Do(Move move, const Seat& seat, const at::Tensor& x, int64_t dim) {
  switch (move) {
    case Move::kGather: return seat.meeting->Gather(seat.slice, x, dim);
    case Move::kReduceScatter: return seat.meeting->ReduceScatter(seat.slice, x, dim);
    case Move::kAllReduce: return seat.meeting->AllReduce(seat.slice, x);
    case Move::kSlice: return EagerChunk(x, dim, seat.meeting->members(), seat.slice).contiguous();
    case Move::kNothing: return x.view_as(x);
  }
  return {};
}

struct MoveBetweenRanks : torch::autograd::Function<MoveBetweenRanks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Seat* seat, Move there,
                            Move back, int64_t dim) {
    context->saved_data["meeting"] = reinterpret_cast<int64_t>(seat->meeting);
    context->saved_data["slice"] = seat->slice;
    context->saved_data["back"] = static_cast<int64_t>(back);
    context->saved_data["dim"] = dim;
    return Do(there, *seat, x, dim);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    Seat seat{reinterpret_cast<Meeting*>(context->saved_data["meeting"].toInt()),
              context->saved_data["slice"].toInt()};
    auto back = static_cast<Move>(context->saved_data["back"].toInt());
    at::Tensor grad = Do(back, seat, grads[0], context->saved_data["dim"].toInt());
    return {grad, {}, {}, {}, {}};
  }
};

// Cross entropy over classes of which this rank has a part, of the labels that are here.
struct SplitCrossEntropy : torch::autograd::Function<SplitCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& labels, Seat* seat) {
    at::Tensor most = at::amax(scores, {1}, /*keepdim=*/true);
    most = seat->meeting->AllReduce(seat->slice, most, ReduceOp::kMax);
    at::Tensor shifted = at::sub(scores, most);
    at::Tensor sum = at::sum(at::exp(shifted), {1}, /*keepdim=*/true);
    sum = seat->meeting->AllReduce(seat->slice, sum);
    at::Tensor logs = at::sub(shifted, at::log(sum));
    auto [loss, weight] =
        at::nll_loss_forward(logs, labels, std::nullopt, at::Reduction::Sum, kIgnoredLabel);
    context->save_for_backward({logs, labels, weight});
    context->saved_data["meeting"] = reinterpret_cast<int64_t>(seat->meeting);
    context->saved_data["slice"] = seat->slice;
    return loss;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list saved = context->get_saved_variables();
    auto* meeting = reinterpret_cast<Meeting*>(context->saved_data["meeting"].toInt());
    at::Tensor grad = at::nll_loss_backward(grads[0], saved[0], saved[1], std::nullopt,
                                            at::Reduction::Sum, kIgnoredLabel, saved[2]);
    at::Tensor sum = at::sum(grad, {1}, /*keepdim=*/true);
    sum = meeting->AllReduce(context->saved_data["slice"].toInt(), sum);
    return {at::sub(grad, at::mul(at::exp(saved[0]), sum)), {}, {}};
  }
};

// Numbers of rows of a table of which this rank has `rows` from `begin` on; which of them others have.
struct Lookup {
  at::Tensor shifted;
  at::Tensor elsewhere;
};
Lookup LookUp(const at::Tensor& numbers, int64_t begin, int64_t rows) {
  at::Tensor elsewhere = at::bitwise_or(at::lt(numbers, begin), at::ge(numbers, begin + rows));
  return {at::sub(numbers, begin), elsewhere};
}

// Where the part of a rank begins.
int64_t BeginOf(int64_t whole, int64_t parts, int64_t part) {
  return std::min(whole, (whole + parts - 1) / parts * part);
}

}  // namespace

std::optional<int64_t> Llama3SplitDim(std::string_view param) {
  if (param.ends_with("norm.weight")) return std::nullopt;
  return param.ends_with(".wo.weight") || param.ends_with(".w2.weight") ? 1 : 0;
}

at::Tensor Llama3Slice::Enter(const at::Tensor& x) {
  Seat seat{&meeting_, slice_};
  if (sequence_parallel_)
    return MoveBetweenRanks::apply(x, &seat, Move::kGather, Move::kReduceScatter, 1);
  return MoveBetweenRanks::apply(x, &seat, Move::kNothing, Move::kAllReduce, 1);
}

at::Tensor Llama3Slice::Leave(const at::Tensor& partial) {
  Seat seat{&meeting_, slice_};
  if (sequence_parallel_)
    return MoveBetweenRanks::apply(partial, &seat, Move::kReduceScatter, Move::kGather, 1);
  return MoveBetweenRanks::apply(partial, &seat, Move::kAllReduce, Move::kNothing, 1);
}

at::Tensor Llama3Slice::Embed(const Weights& weights, const at::Tensor& tokens) {
  ScopeGuard scope("tok_embeddings");
  at::Tensor table = weights("weight");
  Lookup at_rank =
      LookUp(tokens, BeginOf(model_.config.vocab_size, meeting_.members(), slice_), table.size(0));
  at::Tensor rows = at::embedding(table, at::masked_fill(at_rank.shifted, at_rank.elsewhere, 0));
  return at::masked_fill(rows, at_rank.elsewhere.unsqueeze(-1), 0);
}

at::Tensor Llama3Slice::Attention(const Weights& weights, const at::Tensor& x) {
  ScopeGuard scope("attention");
  at::Tensor rotations = weights.Buffer("rope");
  auto heads = [&](std::string_view name) {
    return Linear(weights, name, x).view({x.size(0), x.size(1), -1, model_.config.head_size()});
  };
  at::Tensor q = heads("wq");
  at::Tensor k = heads("wk");
  at::Tensor v = heads("wv");
  q = RotatePairs(q, rotations).transpose(1, 2);
  k = RotatePairs(k, rotations).transpose(1, 2);
  at::Tensor out = Attend(q, k, v.transpose(1, 2), std::nullopt, weights.numerics());
  return Linear(weights, "wo", out.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

at::Tensor Llama3Slice::Loss(const at::Tensor& logits, const at::Tensor& labels) {
  Seat seat{&meeting_, slice_};
  if (!split_loss_)
    return SummedLoss(MoveBetweenRanks::apply(logits, &seat, Move::kGather, Move::kSlice, 2),
                      labels);
  Lookup at_rank =
      LookUp(labels.flatten(), BeginOf(model_.config.vocab_size, meeting_.members(), slice_),
             logits.size(2));
  return SplitCrossEntropy::apply(
      Widened(logits).flatten(0, 1),
      at::masked_fill(at_rank.shifted, at_rank.elsewhere, kIgnoredLabel), &seat);
}

at::Tensor Llama3Slice::LossSum(std::span<const at::Tensor> params,
                                std::span<const at::Tensor> inputs) {
  const ModelConfig& config = model_.config;
  Seat seat{&meeting_, slice_};
  std::vector<at::Tensor> own(params.begin(), params.end());
  for (size_t i = 0; i < own.size(); ++i) {
    if (!sequence_parallel_ || Llama3SplitDim(model_.params[i].name)) continue;
    // Every rank has the gradient of its positions; they are summed in the type that they were computed in.
    own[i] = MoveBetweenRanks::apply(own[i].to(ToScalarType(model_.numerics.compute)), &seat,
                                     Move::kNothing, Move::kAllReduce, 0);
  }
  Weights weights(model_.params, own, model_.inputs, inputs, model_.numerics);
  at::Tensor x = Leave(Embed(weights, inputs[inputs.size() - 2]));
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    ScopeGuard scope(fmt::format("layers.{}", layer));
    at::Tensor h = RmsNorm(weights, "attention_norm", x, config.norm_eps);
    x = at::add(x, Leave(Attention(weights, Enter(h))));
    h = RmsNorm(weights, "ffn_norm", x, config.norm_eps);
    x = at::add(x, Leave(FeedForward(weights, "feed_forward", Enter(h))));
  }
  x = Enter(RmsNorm(weights, "norm", x, config.norm_eps));
  ScopeGuard scope(config.tied ? "tok_embeddings" : "output");
  return Loss(at::linear(x, weights("weight")), inputs.back());
}

}  // namespace heddle
