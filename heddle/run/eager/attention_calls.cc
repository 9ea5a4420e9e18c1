#include "heddle/run/eager/attention_calls.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace heddle::run {
namespace {

constexpr int64_t kAlong = 2;

// The additive mask.
at::Tensor MaskOf(const KernelCall& call, const at::Tensor& like) {
  at::Tensor later =
      at::gt(at::arange(call.first, call.end()).unsqueeze(0), call.positions.unsqueeze(1));
  at::Tensor none = at::zeros({}, like.options());
  return at::where(later, none - std::numeric_limits<double>::infinity(), none);
}

// The operands of a call with several documents: one row with positions before heads, and where the
// documents begin and end.
at::Tensor Row(const at::Tensor& x) { return x[0].transpose(0, 1); }
at::Tensor Batch(const at::Tensor& row) { return row.transpose(0, 1).unsqueeze(0); }
at::Tensor Bounds(const std::vector<int64_t>& sizes, const at::Tensor& like) {
  at::Tensor ends = at::cumsum(at::tensor(sizes), 0).to(at::kInt);
  return at::constant_pad_nd(ends, {1, 0}).to(like.device());
}
int64_t Most(const std::vector<int64_t>& sizes) { return *std::ranges::max_element(sizes); }

}  // namespace

int64_t KernelCall::end() const { return positions[-1].item<int64_t>() + 1; }
at::Tensor KernelCall::Own(const at::Tensor& x) const {
  return x.narrow(0, row, rows).narrow(kAlong, at, positions.numel());
}
at::Tensor KernelCall::Seen(const at::Tensor& x) const {
  return x.narrow(0, row, rows).narrow(kAlong, first, end() - first);
}
at::Tensor KernelCall::Padded(const at::Tensor& grad, const at::Tensor& like) const {
  return at::constant_pad_nd(
      grad, {0, 0, first, like.size(kAlong) - end(), 0, 0, row, like.size(0) - row - rows});
}

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
      at::Tensor firsts = piece - documents[row].narrow(0, at, piece.numel()).cpu();
      bool joined = !documents.is_cpu();
      if (joined) calls.push_back({row, 1, at, piece, firsts[0].item<int64_t>()});
      for (int64_t begin = 0; begin < piece.numel();) {
        auto first = firsts[begin].item<int64_t>();
        int64_t size = at::eq(firsts, first).sum().item<int64_t>();
        at::Tensor own = piece.narrow(0, begin, size);
        if (joined) {
          calls.back().queries.push_back(size);
          calls.back().keys.push_back(own[-1].item<int64_t>() + 1 - first);
        } else {
          calls.push_back({row, 1, at + begin, own, first});
        }
        begin += size;
      }
      at += piece.numel();
    }
  }
  return calls;
}

std::tuple<at::Tensor, at::Tensor> AttendDocuments(const KernelCall& call, const at::Tensor& query,
                                                   const at::Tensor& keys, const at::Tensor& values,
                                                   std::optional<double> scale) {
  auto results = at::_flash_attention_forward(
      Row(query), Row(keys), Row(values), Bounds(call.queries, query), Bounds(call.keys, query),
      Most(call.queries), Most(call.keys), 0.0, /*is_causal=*/true, false, scale);
  return {Batch(std::get<0>(results)), std::get<1>(results).unsqueeze(0)};
}

// The causal kernel for CUDA aligns the last query with the last key.
std::tuple<at::Tensor, at::Tensor> Attend(const KernelCall& call, const at::Tensor& query,
                                          const at::Tensor& keys, const at::Tensor& values,
                                          std::optional<double> scale) {
  if (query.is_cpu()) {
    return at::_scaled_dot_product_flash_attention_for_cpu(
        call.Own(query), call.Seen(keys), call.Seen(values), 0.0, /*is_causal=*/false,
        MaskOf(call, query), scale);
  }
  if (!call.queries.empty())
    return AttendDocuments(call, call.Own(query), call.Seen(keys), call.Seen(values), scale);
  auto results = at::_scaled_dot_product_flash_attention(
      call.Own(query), call.Seen(keys), call.Seen(values), 0.0, /*is_causal=*/true, false, scale);
  return {std::get<0>(results), std::get<1>(results)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> AttendBackward(
    const KernelCall& call, const at::Tensor& grad, const Attended& forward, const at::Tensor& keys,
    const at::Tensor& values, std::optional<double> scale) {
  at::Tensor query = call.Own(forward.query);
  at::Tensor out = call.Own(forward.out);
  at::Tensor logsumexp = call.Own(forward.logsumexp);
  if (query.is_cpu()) {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        call.Own(grad), query, call.Seen(keys), call.Seen(values), out, logsumexp, 0.0,
        /*is_causal=*/false, MaskOf(call, query), scale);
  }
  // The state of dropout, which is not used.
  at::Tensor seed = at::zeros({2}, query.options().dtype(at::kUInt64));
  at::Tensor offset = at::zeros({}, seed.options());
  if (call.queries.empty()) {
    return at::_scaled_dot_product_flash_attention_backward(
        call.Own(grad), query, call.Seen(keys), call.Seen(values), out, logsumexp.contiguous(), {},
        {}, query.size(kAlong), call.end() - call.first, 0.0, /*is_causal=*/true, seed, offset,
        scale);
  }
  auto [queries, key, value] = at::_flash_attention_backward(
      Row(call.Own(grad)), Row(query), Row(call.Seen(keys)), Row(call.Seen(values)), Row(out),
      logsumexp[0].contiguous(), Bounds(call.queries, query), Bounds(call.keys, query),
      Most(call.queries), Most(call.keys), 0.0, /*is_causal=*/true, seed, offset, scale);
  return {Batch(queries), Batch(key), Batch(value)};
}

at::Tensor Joined(const std::vector<KernelCall>& calls, const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < calls.size(); ++i) {
    bool same = i > 0 && calls[i].row == calls[i - 1].row;
    if (same) {
      rows.back() = at::cat({rows.back(), parts[i]}, kAlong);
    } else {
      rows.push_back(parts[i]);
    }
  }
  return at::cat(rows);
}

}  // namespace heddle::run
