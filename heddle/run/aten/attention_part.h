// Causal attention of a part of the queries over the keys of all positions, or of their documents.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/ir/type.h"

namespace heddle::run {

// The positions of queries, and of keys and values, as consecutive ranges in the order of the
// tensors.
struct QueryPart {
  std::vector<Part> queries;
  std::vector<Part> keys;
  // The place of each query in its document, i64[batch, queries]; undefined if queries attend to
  // all earlier positions of the row. The host reads them, and waits for their device.
  at::Tensor documents = {};
  // Whether one call of the kernel has all documents of consecutive queries. Kernels for CUDA can.
  bool joins_documents = false;
};

// Returns the output and its logsumexp. `query` is [batch, heads, positions, size]. Computes only
// pairs of positions that the mask leaves.
std::array<at::Tensor, 2> AttendPart(const QueryPart& part, const at::Tensor& query,
                                     const at::Tensor& key, const at::Tensor& value,
                                     std::optional<double> scale);

// The operands of the backward op.
struct AttendedPart {
  const at::Tensor& grad_out;
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  const at::Tensor& out;
  const at::Tensor& logsumexp;
};
// Returns the gradients of queries, keys and values. Those of keys and values are this part's
// summands, zero for positions that no query sees.
std::array<at::Tensor, 3> AttendPartBackward(const QueryPart& part, const AttendedPart& tensors,
                                             std::optional<double> scale);

// Calls `heddle::document_attention`, which has all queries, and its backward op.
std::array<at::Tensor, 2> AttendToDocuments(const at::Tensor& query, const at::Tensor& key,
                                            const at::Tensor& value, const at::Tensor& positions,
                                            std::optional<double> scale);
std::array<at::Tensor, 3> AttendToDocumentsBackward(const AttendedPart& tensors,
                                                    const at::Tensor& positions,
                                                    std::optional<double> scale);

}  // namespace heddle::run
