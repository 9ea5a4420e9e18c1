#include "heddle/run/aten/attention_part.h"

#include <algorithm>
#include <limits>

#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace heddle::run {
namespace {

constexpr int64_t kPositions = 2;

// Joins tensors along their positions. They are stored with positions before heads.
at::Tensor JoinPositions(const std::vector<at::Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  std::vector<at::Tensor> stored;
  for (const at::Tensor& part : parts) stored.push_back(part.transpose(1, kPositions));
  return at::cat(stored, 1).transpose(1, kPositions);
}

// The ranges and where they begin in a tensor that has them in this order.
struct Placed {
  Part positions;
  int64_t at;
};
std::vector<Placed> PlacesOf(const std::vector<Part>& ranges) {
  std::vector<Placed> out;
  int64_t at = 0;
  for (const Part& range : ranges) {
    out.push_back({range, at});
    at += range.size;
  }
  return out;
}

// Sorts the positions of a tensor that has them in the order of `ranges`.
at::Tensor Sorted(const at::Tensor& tensor, const std::vector<Part>& ranges) {
  std::vector<Placed> places = PlacesOf(ranges);
  std::ranges::sort(places, {}, [](const Placed& place) { return place.positions.begin; });
  std::vector<at::Tensor> parts;
  for (const Placed& place : places)
    parts.push_back(tensor.narrow(kPositions, place.at, place.positions.size));
  return JoinPositions(parts);
}

// The inverse of Sorted.
at::Tensor Unsorted(const at::Tensor& sorted, const std::vector<Part>& ranges) {
  std::vector<at::Tensor> parts;
  for (const Part& range : ranges)
    parts.push_back(sorted.narrow(kPositions, range.begin, range.size));
  return JoinPositions(parts);
}

// The CPU kernel aligns its causal mask with the first key, so a part needs an explicit mask. The
// CUDA kernel aligns it with the last key.
at::Tensor MaskOf(const at::Tensor& query, const Part& range) {
  return at::full({range.size, range.begin + range.size}, -std::numeric_limits<double>::infinity(),
                  query.options())
      .triu_(range.begin + 1);
}

// Sums gradients of keys, or of values, whose positions begin at 0. The sum has all positions and
// is stored like other results of attention.
class SumOfParts {
 public:
  SumOfParts(const at::Tensor& like, size_t parts) : like_(like), parts_(parts) {}

  void Add(const at::Tensor& grad) {
    if (parts_ == 1 && grad.size(kPositions) == like_.size(kPositions)) {
      sum_ = grad;
      return;
    }
    if (!sum_.defined()) {
      // Several gradients are added before they are rounded.
      bool widen = parts_ > 1 && like_.scalar_type() != at::kDouble;
      sum_ = at::zeros({like_.size(0), like_.size(2), like_.size(1), like_.size(3)},
                       widen ? like_.options().dtype(at::kFloat) : like_.options())
                 .transpose(1, kPositions);
    }
    sum_.narrow(kPositions, 0, grad.size(kPositions)).add_(grad);
  }
  at::Tensor Take() const { return sum_.to(like_.scalar_type()); }

 private:
  const at::Tensor& like_;
  size_t parts_;
  at::Tensor sum_;
};

}  // namespace

std::array<at::Tensor, 2> AttendPart(const QueryPart& part, const at::Tensor& query,
                                     const at::Tensor& key, const at::Tensor& value,
                                     std::optional<double> scale) {
  at::Tensor keys = Sorted(key, part.keys);
  at::Tensor values = Sorted(value, part.keys);
  std::vector<at::Tensor> outs;
  std::vector<at::Tensor> logsumexps;
  for (const auto& [range, at] : PlacesOf(part.queries)) {
    at::Tensor own = query.narrow(kPositions, at, range.size);
    int64_t end = range.begin + range.size;
    at::Tensor seen_keys = keys.narrow(kPositions, 0, end);
    at::Tensor seen_values = values.narrow(kPositions, 0, end);
    if (query.is_cpu()) {
      auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          own, seen_keys, seen_values, 0.0, /*is_causal=*/false, MaskOf(query, range), scale);
      outs.push_back(out);
      logsumexps.push_back(logsumexp);
    } else {
      auto results = at::_scaled_dot_product_flash_attention(
          own, seen_keys, seen_values, 0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale);
      outs.push_back(std::get<0>(results));
      logsumexps.push_back(std::get<1>(results));
    }
  }
  bool single = logsumexps.size() == 1;
  return {JoinPositions(outs), single ? logsumexps[0] : at::cat(logsumexps, kPositions)};
}

std::array<at::Tensor, 3> AttendPartBackward(const QueryPart& part, const AttendedPart& tensors,
                                             std::optional<double> scale) {
  at::Tensor keys = Sorted(tensors.key, part.keys);
  at::Tensor values = Sorted(tensors.value, part.keys);
  std::vector<at::Tensor> grad_queries;
  SumOfParts grad_keys(tensors.key, part.queries.size());
  SumOfParts grad_values(tensors.value, part.queries.size());
  for (const auto& place : PlacesOf(part.queries)) {
    const Part& range = place.positions;
    auto own = [&](const at::Tensor& tensor) {
      return tensor.narrow(kPositions, place.at, range.size);
    };
    int64_t end = range.begin + range.size;
    at::Tensor seen_keys = keys.narrow(kPositions, 0, end);
    at::Tensor seen_values = values.narrow(kPositions, 0, end);
    std::tuple<at::Tensor, at::Tensor, at::Tensor> grads;
    if (tensors.query.is_cpu()) {
      grads = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          own(tensors.grad_out), own(tensors.query), seen_keys, seen_values, own(tensors.out),
          own(tensors.logsumexp), 0.0, /*is_causal=*/false, MaskOf(tensors.query, range), scale);
    } else {
      // The state of dropout, which is not used.
      at::Tensor seed = at::zeros({2}, tensors.query.options().dtype(at::kUInt64));
      at::Tensor offset = at::zeros({}, seed.options());
      grads = at::_scaled_dot_product_flash_attention_backward(
          own(tensors.grad_out), own(tensors.query), seen_keys, seen_values, own(tensors.out),
          own(tensors.logsumexp).contiguous(), {}, {}, range.size, end, 0.0, /*is_causal=*/true,
          seed, offset, scale);
    }
    grad_queries.push_back(std::get<0>(grads));
    grad_keys.Add(std::get<1>(grads));
    grad_values.Add(std::get<2>(grads));
  }
  return {JoinPositions(grad_queries), Unsorted(grad_keys.Take(), part.keys),
          Unsorted(grad_values.Take(), part.keys)};
}

}  // namespace heddle::run
