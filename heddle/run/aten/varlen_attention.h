// Flash attention of several sequences in one call: ATen's kernel for CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "heddle/run/aten/attention_part.h"

namespace heddle::run {

// The lengths of sequences that follow each other in the queries and in the keys of a call. The
// last query of a sequence has the position of its last key.
class Sequences {
 public:
  void Add(int64_t queries, int64_t keys);
  bool empty() const { return most_queries_ == 0; }
  int64_t most_queries() const { return most_queries_; }
  int64_t most_keys() const { return most_keys_; }

  // The ends of the sequences, after a zero: i32[sequences + 1]. The copy to a device does not wait
  // for it.
  at::Tensor QueryEnds(c10::Device device) const { return Copied(query_ends_, device); }
  at::Tensor KeyEnds(c10::Device device) const { return Copied(key_ends_, device); }

 private:
  static at::Tensor Copied(const std::vector<int32_t>& ends, c10::Device device);

  std::vector<int32_t> query_ends_ = {0};
  std::vector<int32_t> key_ends_ = {0};
  int64_t most_queries_ = 0;
  int64_t most_keys_ = 0;
};

// Causal attention within each sequence: the output and its logsumexp. Tensors are [rows, heads,
// positions, size], and sequences continue with the next row.
std::array<at::Tensor, 2> AttendSequences(const Sequences& sequences, const at::Tensor& query,
                                          const at::Tensor& key, const at::Tensor& value,
                                          std::optional<double> scale);
// The gradients of queries, keys and values.
std::array<at::Tensor, 3> AttendSequencesBackward(const Sequences& sequences,
                                                  const AttendedPart& tensors,
                                                  std::optional<double> scale);

}  // namespace heddle::run
