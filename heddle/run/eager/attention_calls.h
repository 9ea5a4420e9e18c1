// Calls of flash attention for a part of the queries, in training without graphs.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

namespace heddle::run {

// A call of the kernel: the queries of some rows with consecutive positions, and the keys from the
// first that they see to the position of the last query. Tensors are [rows, heads, positions,
// size].
struct KernelCall {
  int64_t row = 0;
  int64_t rows = 0;
  // Where the queries begin on this rank.
  int64_t at = 0;
  at::Tensor positions;
  int64_t first = 0;
  // With several documents, which CUDA attends to in one call: their queries and keys.
  std::vector<int64_t> queries = {};
  std::vector<int64_t> keys = {};

  int64_t end() const;
  at::Tensor Own(const at::Tensor& x) const;
  at::Tensor Seen(const at::Tensor& x) const;
  // Zeros for the other keys and rows.
  at::Tensor Padded(const at::Tensor& grad, const at::Tensor& like) const;
};

// One call for each piece of the positions. With documents, one for each document of a row in it,
// or on CUDA one for all of them.
std::vector<KernelCall> CallsFor(const std::vector<at::Tensor>& pieces, int64_t rows,
                                 const at::Tensor& documents);

// The output and its logsumexp.
std::tuple<at::Tensor, at::Tensor> Attend(const KernelCall& call, const at::Tensor& query,
                                          const at::Tensor& keys, const at::Tensor& values,
                                          std::optional<double> scale);
// The same for several documents, with the call's own queries and keys. Autograd follows it.
std::tuple<at::Tensor, at::Tensor> AttendDocuments(const KernelCall& call, const at::Tensor& query,
                                                   const at::Tensor& keys, const at::Tensor& values,
                                                   std::optional<double> scale);

// The tensors that backward reads.
struct Attended {
  at::Tensor query;
  at::Tensor out;
  at::Tensor logsumexp;
};
// Gradients of the call's queries, and of the keys and values that they see.
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttendBackward(
    const KernelCall& call, const at::Tensor& grad, const Attended& forward, const at::Tensor& keys,
    const at::Tensor& values, std::optional<double> scale);

// Joins results of calls for consecutive queries of each row.
at::Tensor Joined(const std::vector<KernelCall>& calls, const std::vector<at::Tensor>& parts);

}  // namespace heddle::run
