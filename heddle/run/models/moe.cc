// Mixture of experts on one device: every token goes to its best experts, which work on groups of
// rows.
//
// The number of rows, tokens times experts per token, is static. Their distribution over experts is
// data.
#include <limits>

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "heddle/run/capture/scope.h"
#include "heddle/run/layers/row_product.h"
#include "heddle/run/models/decoder.h"

namespace heddle::run {
namespace {

// Divides rows by their sums. As with Rsqrt (layers.cc), the order in which libtorch's derivative
// is recorded depends on its compiler.
struct Quotient : torch::autograd::Function<Quotient> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& sums) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({rows, sums});
    return at::div(rows, sums);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    torch::autograd::variable_list saved = context->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor twice = at::div(at::div(saved[0], saved[1]), saved[1]);
    at::Tensor minus = at::neg(grads[0]);
    at::Tensor product = at::mul(minus, twice);
    at::Tensor to_rows = at::div(grads[0], saved[1]);
    return {to_rows, at::sum(product, {1}, /*keepdim=*/true)};
  }
};

struct Routing {
  // [tokens, experts].
  at::Tensor scores;
  // [tokens, top_k]: the chosen experts and their weights.
  at::Tensor experts;
  at::Tensor weights;
};

// Returns scores for choosing experts, with those outside the best groups excluded.
at::Tensor LimitGroups(const MoeConfig& moe, const at::Tensor& scores) {
  int64_t tokens = scores.size(0);
  at::Tensor grouped = scores.view({tokens, moe.groups, -1});
  int64_t judged = std::min<int64_t>(2, moe.experts / moe.groups);
  at::Tensor group_scores = moe.group_score == GroupScore::kMax
                                ? at::amax(grouped, -1)
                                : std::get<0>(at::topk(grouped, judged, -1)).sum(-1);
  at::Tensor best = std::get<1>(
      at::topk(group_scores, moe.limited_groups, -1, /*largest=*/true, /*sorted=*/false));
  at::Tensor ruled_out = at::scatter(at::ones_like(group_scores, at::kBool), 1, best, false);
  return at::masked_fill(grouped, ruled_out.unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .view({tokens, moe.experts});
}

Routing Route(const ModelWeights& weights, const MoeConfig& moe, const at::Tensor& x,
              const std::optional<at::Tensor>& bias) {
  ScopeGuard scope("router");
  at::Tensor logits;
  {
    ScopeGuard gate("gate");
    at::Tensor weight = Widened(weights("weight"));
    logits = Product(weights, Widened(x), weight);
    if (weights.Has("bias")) logits = at::add(logits, Widened(weights("bias")));
  }
  Routing routing;
  at::Tensor& scores = routing.scores;
  scores = moe.score == RouterScore::kSigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
  at::Tensor choosing = bias ? at::add(scores, *bias) : scores;
  if (moe.groups > 0) choosing = LimitGroups(moe, choosing);
  routing.experts =
      std::get<1>(at::topk(choosing, moe.top_k, -1, /*largest=*/true, /*sorted=*/false));
  routing.weights = at::gather(scores, 1, routing.experts);
  if (moe.normalize)
    routing.weights =
        Quotient::apply(routing.weights, at::add(routing.weights.sum(-1, true), 1e-20));
  routing.weights = at::mul(routing.weights, moe.route_scale);
  return routing;
}

// DeepSeek's balance loss within sequences. For each expert, multiplies the share of tokens that
// chose it by the mean of its scores, relative to a uniform distribution. Multiplies the result by
// the number of tokens of the sequence, because the summed loss is divided by tokens. It is outside
// the mixture's module, where ranks may have parts of sequences.
at::Tensor SequenceBalance(const MoeConfig& moe, const Routing& routing, int64_t positions) {
  ScopeGuard scope("balance");
  const at::Tensor& scores = routing.scores;
  at::Tensor shares = moe.score == RouterScore::kSigmoid
                          ? Quotient::apply(scores, at::add(scores.sum(-1, true), 1e-20))
                          : scores;
  at::Tensor chose = at::scatter(at::zeros_like(scores.detach()), 1, routing.experts, 1);
  auto by_sequence = [&](const at::Tensor& x) {
    return x.view({-1, positions, moe.experts}).sum(1);
  };
  double alike = static_cast<double>(moe.top_k * positions) / static_cast<double>(moe.experts);
  return at::div(at::mul(by_sequence(chose), by_sequence(shares)).sum(), alike);
}

// Multiplies the rows of each expert with its weight, for decoding.
at::Tensor ProductsOfExperts(const at::Tensor& rows, const at::Tensor& weights,
                             const at::Tensor& ends) {
  std::vector<at::Tensor> products;
  int64_t begin = 0;
  for (int64_t expert = 0; expert < weights.size(0); ++expert) {
    auto end = ends[expert].item<int64_t>();
    if (end > begin) products.push_back(RowProduct(rows.slice(0, begin, end), weights[expert]));
    begin = end;
  }
  return at::cat(products);
}

// Applies experts to the rows of x, which are sorted by expert; `ends` contains the end of each
// group. The bias of each row's expert, [experts, size, 1], is a product with ones: grouped
// products know where the rows of each expert are, on any ranks.
at::Tensor RunExperts(const ModelWeights& weights, const Family& family, const at::Tensor& x,
                      const at::Tensor& ends) {
  ScopeGuard scope("routed_experts.inner_experts");
  at::Tensor ones;
  if (family.expert_biases) ones = at::ones_like(x.slice(1, 0, kBiasColumns));
  auto product = [&](const at::Tensor& rows, std::string_view name, std::string_view bias) {
    bool cached = weights.cache() != nullptr;
    at::Tensor out = cached ? ProductsOfExperts(rows, weights(name), ends)
                            : at::_grouped_mm(rows, weights(name).transpose(-2, -1), ends);
    if (!family.expert_biases) return out;
    at::Tensor padded = at::constant_pad_nd(weights(bias), {0, kBiasColumns - 1});
    return at::add(out, at::_grouped_mm(ones, padded.transpose(-2, -1), ends));
  };
  at::Tensor gate = product(x, "w1_EFD", kExpertBiases[0]);
  if (family.expert_gate == nullptr) gate = at::silu(gate);
  at::Tensor up = product(x, "w3_EFD", kExpertBiases[2]);
  at::Tensor hidden =
      family.expert_gate != nullptr ? family.expert_gate(gate, up) : at::mul(gate, up);
  return product(hidden, "w2_EDF", kExpertBiases[1]);
}

std::pair<at::Tensor, Routing> RouteAndMix(const ModelWeights& weights, const ModelConfig& config,
                                           const at::Tensor& input, int64_t layer) {
  ScopeGuard scope("moe");
  const MoeConfig& moe = config.moe;
  at::Tensor x = input.reshape({-1, config.dim});
  std::optional<at::Tensor> bias;
  if (moe.bias) bias = weights.Buffer(ExpertBiasName(layer));
  Routing routing = Route(weights, moe, x, bias);
  at::Tensor chosen = routing.experts.flatten();
  at::Tensor counts = at::bincount(chosen, std::nullopt, moe.experts);
  if (moe.bias && moe.bias_rate > 0) weights.Changes(ExpertBiasName(layer), counts);
  weights.Measures(BlockUnit(layer) + std::string(kExpertCounts), counts);
  at::Tensor ends = at::cumsum(counts, 0).to(at::kInt);
  // Stable, so that rows of one expert keep the order of their tokens.
  at::Tensor order = std::get<1>(at::sort(chosen, /*stable=*/true, 0, /*descending=*/false));
  at::Tensor back = std::get<1>(at::sort(order, /*stable=*/true, 0, /*descending=*/false));
  at::Tensor token_of_row = at::div(order, moe.top_k, "floor");
  at::Tensor sorted = x.index_select(0, token_of_row);
  ExpertProducts products = [&](const at::Tensor& grouped, const at::Tensor& group_ends) {
    return RunExperts(weights, *config.family, grouped, group_ends);
  };
  at::Tensor rows =
      weights.spread() ? weights.spread()(sorted, counts, products) : products(sorted, ends);
  // Restores the order of tokens; weights and sums are in f32.
  at::Tensor by_token = rows.index_select(0, back).view({x.size(0), moe.top_k, config.dim});
  at::Tensor shares = routing.weights.unsqueeze(-1);
  at::Tensor out = at::mul(Widened(by_token), shares).sum(1).to(x.scalar_type());
  if (moe.shared_experts > 0) out = at::add(out, FeedForward(weights, "shared_experts", x));
  return {out.view(input.sizes()), routing};
}

}  // namespace

std::string ExpertBiasName(int64_t layer) {
  return fmt::format("layers.{}.moe.expert_bias_E", layer);
}

at::Tensor BalancedBias(const MoeConfig& moe, const at::Tensor& bias, const at::Tensor& counts) {
  ScopeGuard scope("balance");
  at::Tensor tokens = counts.to(at::kFloat);
  at::Tensor step = at::mul(at::sign(at::sub(at::mean(tokens), tokens)), moe.bias_rate);
  return at::add(bias, at::sub(step, at::mean(step)));
}

void AddMoe(ParamList& params, std::vector<StepInput>& buffers, const ModelConfig& config,
            int64_t layer) {
  const MoeConfig& moe = config.moe;
  std::string unit = BlockUnit(layer);
  std::string prefix = unit + ".moe";
  std::string experts = prefix + ".routed_experts.inner_experts";
  params.Add(experts + ".w1_EFD", {moe.experts, moe.ffn_dim, config.dim}, unit);
  params.Add(experts + ".w2_EDF", {moe.experts, config.dim, moe.ffn_dim}, unit);
  params.Add(experts + ".w3_EFD", {moe.experts, moe.ffn_dim, config.dim}, unit);
  if (config.family->expert_biases) {
    for (std::string_view name : kExpertBiases) {
      int64_t size = name == kExpertBiases[1] ? config.dim : moe.ffn_dim;
      params.Add(fmt::format("{}.{}", experts, name), {moe.experts, size, 1}, unit);
    }
  }
  params.Add(prefix + ".router.gate.weight", {moe.experts, config.dim}, unit);
  if (config.family->expert_biases) params.Add(prefix + ".router.gate.bias", {moe.experts}, unit);
  if (moe.shared_experts > 0)
    AddFeedForward(params, prefix + ".shared_experts", config.dim, moe.ffn_dim * moe.shared_experts,
                   unit);
  if (moe.bias)
    buffers.push_back({ExpertBiasName(layer), InputRole::kBuffer, DType::kF32, {moe.experts}});
}

at::Tensor Moe(const ModelWeights& weights, const ModelConfig& config, const at::Tensor& input,
               int64_t layer) {
  auto [out, routing] = RouteAndMix(weights, config, input, layer);
  double aux_loss = weights.numerics().aux_loss;
  if (aux_loss > 0)
    weights.AddToLoss(at::mul(SequenceBalance(config.moe, routing, input.size(1)), aux_loss));
  return out;
}

}  // namespace heddle::run
