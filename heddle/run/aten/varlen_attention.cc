#include "heddle/run/aten/varlen_attention.h"

#include <algorithm>

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

namespace heddle::run {
namespace {

constexpr int64_t kHeadDim = 1;
constexpr int64_t kPositionDim = 2;

// [rows * positions, heads, size], as the kernel takes it. A view if positions are stored before
// heads.
at::Tensor Flat(const at::Tensor& tensor) {
  return tensor.transpose(kHeadDim, kPositionDim).flatten(0, 1);
}
at::Tensor Unflat(const at::Tensor& flat, int64_t rows) {
  return flat.unflatten(0, {rows, -1}).transpose(kHeadDim, kPositionDim);
}

}  // namespace

void Sequences::Add(int64_t queries, int64_t keys) {
  query_ends_.push_back(query_ends_.back() + static_cast<int32_t>(queries));
  key_ends_.push_back(key_ends_.back() + static_cast<int32_t>(keys));
  most_queries_ = std::max(most_queries_, queries);
  most_keys_ = std::max(most_keys_, keys);
}

at::Tensor Sequences::Copied(const std::vector<int32_t>& ends, c10::Device device) {
  // The driver reads memory that is not pinned before the call returns.
  return at::tensor(ends, at::kInt).to(device, /*non_blocking=*/true);
}

std::array<at::Tensor, 2> AttendSequences(const Sequences& sequences, const at::Tensor& query,
                                          const at::Tensor& key, const at::Tensor& value,
                                          std::optional<double> scale) {
  auto results = at::_flash_attention_forward(
      Flat(query), Flat(key), Flat(value), sequences.QueryEnds(query.device()),
      sequences.KeyEnds(query.device()), sequences.most_queries(), sequences.most_keys(),
      /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale);
  int64_t rows = query.size(0);
  // The logsumexp is [heads, rows * positions].
  at::Tensor logsumexp = std::get<1>(results).unflatten(1, {rows, -1}).transpose(0, 1);
  return {Unflat(std::get<0>(results), rows), logsumexp.contiguous()};
}

std::array<at::Tensor, 3> AttendSequencesBackward(const Sequences& sequences,
                                                  const AttendedPart& tensors,
                                                  std::optional<double> scale) {
  c10::Device device = tensors.query.device();
  // The state of dropout, which is not used.
  at::Tensor seed = at::zeros({2}, tensors.query.options().dtype(at::kUInt64));
  at::Tensor offset = at::zeros({}, seed.options());
  auto [query, key, value] = at::_flash_attention_backward(
      Flat(tensors.grad_out), Flat(tensors.query), Flat(tensors.key), Flat(tensors.value),
      Flat(tensors.out), tensors.logsumexp.transpose(0, 1).flatten(1).contiguous(),
      sequences.QueryEnds(device), sequences.KeyEnds(device), sequences.most_queries(),
      sequences.most_keys(), /*dropout_p=*/0.0, /*is_causal=*/true, seed, offset, scale);
  int64_t rows = tensors.query.size(0);
  return {Unflat(query, rows), Unflat(key, rows), Unflat(value, rows)};
}

}  // namespace heddle::run
