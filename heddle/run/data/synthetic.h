// Synthetic tokens: the same numbers on every platform and mesh.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "heddle/run/data/dataset.h"

namespace heddle::run {

struct SyntheticStep {
  int64_t vocab = 1;
  int64_t seq_len = 0;
  uint64_t seed = 0;
  int64_t step = 0;
};

// Fills in rows of synthetic tokens; the size of `tokens` determines the number of rows. The token
// at a position is splitmix64(seed * 2^40 + step * 2^32 + row * 2^16 + position) modulo the
// vocabulary. Its label is the token at the next position. Rows count over the whole batch.
void SyntheticRows(const SyntheticStep& step, int64_t first_row, std::span<int64_t> tokens,
                   std::span<int64_t> labels);

// Returns a dataset of synthetic tokens. Held-out rows use another seed.
std::unique_ptr<Dataset> MakeSyntheticDataset(const DatasetOptions& options);

}  // namespace heddle::run
