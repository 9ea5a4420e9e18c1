#include "heddle/run/aten/ring_attention.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>

namespace heddle::run {
namespace {

constexpr int64_t kRingPositions = 2;

// A tensor with the shape of `like`, but with heads of `size`, stored as results of attention are:
// with positions before heads.
at::Tensor Unset(const at::Tensor& like, int64_t size) {
  return at::empty({like.size(0), like.size(2), like.size(1), size}, like.options())
      .transpose(1, kRingPositions);
}

// Adds zeros before and after a range of positions.
at::Tensor Spread(const at::Tensor& part, const Part& range, int64_t positions) {
  if (range.size == positions) return part;
  at::Tensor whole =
      at::zeros({part.size(0), positions, part.size(1), part.size(3)}, part.options())
          .transpose(1, kRingPositions);
  whole.narrow(kRingPositions, range.begin, range.size).copy_(part);
  return whole;
}

at::Tensor Within(const at::Tensor& tensor, const Part& range) {
  return tensor.narrow(kRingPositions, range.begin, range.size);
}

}  // namespace

std::array<at::Tensor, 2> AttendRing(const RingPart& part, const at::Tensor& query,
                                     const at::Tensor& key, const at::Tensor& value,
                                     std::optional<double> scale) {
  int64_t positions = query.size(kRingPositions);
  auto unseen = [&] {
    bool wide = query.scalar_type() == at::kDouble;
    return at::full({query.size(0), query.size(1), positions},
                    -std::numeric_limits<double>::infinity(),
                    query.options().dtype(wide ? at::kDouble : at::kFloat));
  };
  if (part.queries.size == 0) return {Unset(query, value.size(3)).zero_(), unseen()};
  at::Tensor own = Within(query, part.queries);
  at::Tensor keys = Within(key, part.keys);
  at::Tensor values = Within(value, part.keys);
  at::Tensor out;
  at::Tensor logsumexp;
  if (query.is_cpu()) {
    std::tie(out, logsumexp) = at::_scaled_dot_product_flash_attention_for_cpu(
        own, keys, values, 0.0, part.causal, {}, scale);
  } else {
    auto results = at::_scaled_dot_product_flash_attention(own, keys, values, 0.0, part.causal,
                                                           /*return_debug_mask=*/false, scale);
    out = std::get<0>(results);
    logsumexp = std::get<1>(results);
  }
  if (part.queries.size == positions) return {out, logsumexp};
  at::Tensor sums = unseen();
  Within(sums, part.queries).copy_(logsumexp);
  return {Spread(out, part.queries, positions), sums};
}

std::array<at::Tensor, 3> AttendRingBackward(const RingPart& part, const AttendedPart& tensors,
                                             std::optional<double> scale) {
  const at::Tensor& query = tensors.query;
  if (part.queries.size == 0)
    return {Unset(query, query.size(3)).zero_(), Unset(tensors.key, tensors.key.size(3)).zero_(),
            Unset(tensors.value, tensors.value.size(3)).zero_()};
  auto own = [&](const at::Tensor& tensor) { return Within(tensor, part.queries); };
  at::Tensor keys = Within(tensors.key, part.keys);
  at::Tensor values = Within(tensors.value, part.keys);
  std::tuple<at::Tensor, at::Tensor, at::Tensor> grads;
  if (query.is_cpu()) {
    grads = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        own(tensors.grad_out), own(query), keys, values, own(tensors.out), own(tensors.logsumexp),
        0.0, part.causal, {}, scale);
  } else {
    // The state of dropout, which is not used.
    at::Tensor seed = at::zeros({2}, query.options().dtype(at::kUInt64));
    at::Tensor offset = at::zeros({}, seed.options());
    grads = at::_scaled_dot_product_flash_attention_backward(
        own(tensors.grad_out), own(query), keys, values, own(tensors.out),
        own(tensors.logsumexp).contiguous(), {}, {}, part.queries.size, part.keys.size, 0.0,
        part.causal, seed, offset, scale);
  }
  return {Spread(std::get<0>(grads), part.queries, query.size(kRingPositions)),
          Spread(std::get<1>(grads), part.keys, tensors.key.size(kRingPositions)),
          Spread(std::get<2>(grads), part.keys, tensors.key.size(kRingPositions))};
}

std::array<at::Tensor, 2> MergeAttention(const at::Tensor& out, const at::Tensor& logsumexp,
                                         const at::Tensor& part, const at::Tensor& part_logsumexp,
                                         at::ScalarType type) {
  at::Tensor sum = out.to(logsumexp.scalar_type());
  at::Tensor share = at::sigmoid(part_logsumexp - logsumexp).unsqueeze(-1);
  return {(sum - share * (sum - part)).to(type),
          logsumexp - at::log_sigmoid(logsumexp - part_logsumexp)};
}

}  // namespace heddle::run
