// BatchesAhead: makes the batches of a step while the device still works on the step before.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "heddle/run/train/program.h"

namespace heddle::run {

class BatchesAhead {
 public:
  explicit BatchesAhead(BatchSource source) : source_(std::move(source)) {}

  // As the source gives it.
  Result<Batch> Get(int64_t step, int64_t first_row, int64_t rows);
  // Makes the rows that the last step had for `step`. If this fails, Get tries again and
  // reports the error.
  void Fetch(int64_t step);

 private:
  using Rows = std::pair<int64_t, int64_t>;

  BatchSource source_;
  int64_t step_ = 0;
  // Rows that were asked for in step_, and those of the next step.
  std::set<Rows> asked_;
  std::map<Rows, Batch> ahead_;
  int64_t ahead_step_ = 0;
};

}  // namespace heddle::run
