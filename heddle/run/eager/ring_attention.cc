#include "heddle/run/eager/ring_attention.h"

#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "heddle/run/layers/layers.h"

namespace heddle::run {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kSequence = 2;

// Stores positions before heads, as attention does.
at::Tensor PositionsFirst(const at::Tensor& x) {
  return x.transpose(1, kSequence).contiguous().transpose(1, kSequence);
}

// The output and its logsumexp of queries that see all keys, or no later ones.
std::tuple<at::Tensor, at::Tensor> AttendStep(const at::Tensor& query, const at::Tensor& key,
                                              const at::Tensor& value, bool causal,
                                              std::optional<double> scale) {
  if (query.is_cpu())
    return at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, {},
                                                           scale);
  auto results =
      at::_scaled_dot_product_flash_attention(query, key, value, 0.0, causal, false, scale);
  return {std::get<0>(results), std::get<1>(results)};
}

// What backward of a step reads. `out` and `logsumexp` are those of all steps.
struct StepOperands {
  at::Tensor grad;
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor out;
  at::Tensor logsumexp;
};
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttendStepBackward(const StepOperands& o,
                                                                  bool causal,
                                                                  std::optional<double> scale) {
  if (o.query.is_cpu())
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        o.grad, o.query, o.key, o.value, o.out, o.logsumexp, 0.0, causal, {}, scale);
  // The state of dropout, which is not used.
  at::Tensor seed = at::zeros({2}, o.query.options().dtype(at::kUInt64));
  at::Tensor offset = at::zeros({}, seed.options());
  return at::_scaled_dot_product_flash_attention_backward(
      o.grad, o.query, o.key, o.value, o.out, o.logsumexp.contiguous(), {}, {},
      o.query.size(kSequence), o.key.size(kSequence), 0.0, causal, seed, offset, scale);
}

at::Tensor Plus(const at::Tensor& sum, const at::Tensor& summand) {
  return sum.defined() ? sum + Widened(summand) : Widened(summand);
}

// A rank's place in its ring.
struct RingPlace {
  GroupRank rank;
  bool head_tail = false;

  int64_t ranks() const { return rank.group->members(); }
  int64_t Before(int64_t step) const { return (rank.member - step + ranks()) % ranks(); }

  // The queries that see keys of the rank `step` before this one, and these keys. Queries that see
  // some of them see all, except for those of this rank. `size` is the number of a rank's
  // positions.
  struct Seen {
    int64_t query = 0;
    int64_t queries = 0;
    int64_t keys = 0;

    at::Tensor Queries(const at::Tensor& x) const { return x.narrow(kSequence, query, queries); }
    at::Tensor Keys(const at::Tensor& x) const { return x.narrow(kSequence, 0, keys); }
  };
  Seen SeenIn(int64_t step, int64_t size) const {
    if (step == 0) return {0, size, size};
    bool earlier = Before(step) < rank.member;
    if (!head_tail) return earlier ? Seen{0, size, size} : Seen{};
    return earlier ? Seen{0, size, size / 2} : Seen{size / 2, size / 2, size};
  }

  // The parts of all ranks.
  std::vector<at::Tensor> Parts(const at::Tensor& own) const {
    return rank.group->Gather(rank.member, own, kSequence).chunk(ranks(), kSequence);
  }
  // Sums the gradients of this rank's keys in the order in which the keys travel. `by_rank` are its
  // summands for the keys of all ranks.
  at::Tensor SumAround(const std::vector<at::Tensor>& by_rank) const {
    std::vector<at::Tensor> own;
    for (int64_t part = 0; part < ranks(); ++part) {
      at::Tensor all = rank.group->Gather(rank.member, by_rank[static_cast<size_t>(part)], 0);
      if (part == rank.member) own = all.chunk(ranks(), 0);
    }
    at::Tensor sum;
    for (int64_t step = 0; step < ranks(); ++step)
      sum = Plus(sum, own[static_cast<size_t>((rank.member + step) % ranks())]);
    return PositionsFirst(sum.to(by_rank[0].scalar_type()));
  }
};

struct Ring : torch::autograd::Function<Ring> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value, const RingPlace* place,
                            std::optional<double> scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::vector<at::Tensor> keys = place->Parts(key);
    std::vector<at::Tensor> values = place->Parts(value);
    at::Tensor out;
    at::Tensor logsumexp;
    for (int64_t step = 0; step < place->ranks(); ++step) {
      auto part = static_cast<size_t>(place->Before(step));
      RingPlace::Seen seen = place->SeenIn(step, query.size(kSequence));
      if (seen.queries == 0) continue;
      auto [some, some_sum] =
          AttendStep(seen.Queries(query), seen.Keys(keys[part]), seen.Keys(values[part]),
                     /*causal=*/step == 0, scale);
      if (step == 0) {
        out = Widened(some);
        logsumexp = some_sum;
        continue;
      }
      // Nothing, for queries that see none of the keys.
      at::Tensor next = at::zeros_like(out);
      at::Tensor next_sum = at::full_like(logsumexp, -std::numeric_limits<double>::infinity());
      seen.Queries(next).copy_(some);
      seen.Queries(next_sum).copy_(some_sum);
      out = out - at::sigmoid(next_sum - logsumexp).unsqueeze(-1) * (out - next);
      logsumexp = logsumexp - at::log_sigmoid(logsumexp - next_sum);
    }
    out = PositionsFirst(out.to(query.scalar_type()));
    context->save_for_backward({query, key, value, out, logsumexp});
    context->saved_data["group"] = reinterpret_cast<int64_t>(place->rank.group);
    context->saved_data["member"] = place->rank.member;
    context->saved_data["head_tail"] = place->head_tail;
    context->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    RingPlace place{{reinterpret_cast<ThreadGroup*>(context->saved_data["group"].toInt()),
                     context->saved_data["member"].toInt()},
                    context->saved_data["head_tail"].toBool()};
    auto scale = context->saved_data["scale"].toOptional<double>();
    variable_list saved = context->get_saved_variables();
    std::vector<at::Tensor> keys = place.Parts(saved[1]);
    std::vector<at::Tensor> values = place.Parts(saved[2]);
    at::Tensor query_sum;
    std::vector<at::Tensor> key_grads(keys.size());
    std::vector<at::Tensor> value_grads(keys.size());
    for (int64_t step = 0; step < place.ranks(); ++step) {
      auto part = static_cast<size_t>(place.Before(step));
      RingPlace::Seen seen = place.SeenIn(step, saved[0].size(kSequence));
      at::Tensor query_grad = at::zeros_like(saved[0]);
      key_grads[part] = at::zeros_like(keys[part]);
      value_grads[part] = at::zeros_like(values[part]);
      if (seen.queries > 0) {
        auto [q, k, v] = AttendStepBackward(
            {seen.Queries(grads[0]), seen.Queries(saved[0]), seen.Keys(keys[part]),
             seen.Keys(values[part]), seen.Queries(saved[3]), seen.Queries(saved[4])},
            /*causal=*/step == 0, scale);
        seen.Queries(query_grad).copy_(q);
        seen.Keys(key_grads[part]).copy_(k);
        seen.Keys(value_grads[part]).copy_(v);
      }
      query_sum = Plus(query_sum, query_grad);
    }
    return {PositionsFirst(query_sum.to(saved[0].scalar_type())),
            place.SumAround(key_grads),
            place.SumAround(value_grads),
            {},
            {}};
  }
};

}  // namespace

at::Tensor RingAttention(const GroupRank& rank, bool head_tail, const AttentionInputs& inputs) {
  RingPlace place{rank, head_tail};
  return Ring::apply(inputs.query, inputs.key, inputs.value, &place, inputs.scale);
}

}  // namespace heddle::run
