#include "heddle/run/train/batches_ahead.h"

namespace heddle::run {

Result<Batch> BatchesAhead::Get(int64_t step, int64_t first_row, int64_t rows) {
  if (step != step_) asked_.clear();
  step_ = step;
  auto found = ahead_.find({first_row, rows});
  if (step == ahead_step_ && found != ahead_.end()) {
    asked_.emplace(first_row, rows);
    return found->second;
  }
  HEDDLE_TRY(Batch batch, source_(step, first_row, rows));
  asked_.emplace(first_row, rows);
  return batch;
}

void BatchesAhead::Fetch(int64_t step) {
  ahead_.clear();
  ahead_step_ = step;
  for (const Rows& rows : asked_) {
    Result<Batch> batch = source_(step, rows.first, rows.second);
    if (batch.ok()) ahead_[rows] = *std::move(batch);
  }
}

}  // namespace heddle::run
