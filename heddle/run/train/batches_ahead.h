// BatchesAhead: loads the batches of the next step while the device runs the current one.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "heddle/run/train/bound_step.h"

namespace heddle::run {

class BatchesAhead {
 public:
  explicit BatchesAhead(BatchSource source) : source_(std::move(source)) {}

  // Returns the batch of the source.
  Result<Batch> Get(int64_t step, int64_t first_row, int64_t rows);
  // Loads for `step` the same rows that the last step asked for. If this fails, Get tries again and
  // reports the error.
  void Fetch(int64_t step);

 private:
  using Rows = std::pair<int64_t, int64_t>;

  BatchSource source_;
  int64_t step_ = 0;
  // Rows of step_ that were requested, and the loaded rows of the next step.
  std::set<Rows> asked_;
  std::map<Rows, Batch> ahead_;
  int64_t ahead_step_ = 0;
};

}  // namespace heddle::run
