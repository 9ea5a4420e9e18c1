// The state of a run that a checkpoint stores in addition to tensors: model, data and settings.
//
// Model, flavor, constants of the model, seed and data identify a run: a run resumes only if they
// are the same, and with the same optimizer. Settings, such as the learning rate, may change;
// differences become remarks.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/models/config.h"

namespace heddle::run {

struct RunState {
  ModelConfig config;
  int64_t seed = 0;
  // The fingerprint of the dataset, and whether its tokens are bytes of text.
  std::string data;
  bool text = false;
  // The largest token of the data. Unset if only a part was checked.
  std::optional<int64_t> largest_token = {};
  // Flags without dashes, and their values: `optimizer.lr`, `0.0008`.
  std::vector<std::pair<std::string, std::string>> settings;
};

// Returns JSON.
std::string FormatRunState(const RunState& state);

// The part of a checkpoint's state that commands need.
struct SavedRunState {
  // Unset for checkpoints of versions that did not store constants.
  std::optional<ModelConfig> config;
  bool text = false;
  std::optional<int64_t> largest_token;
};
// Fails for a model that this version does not have.
Result<SavedRunState> ReadRunState(const Checkpoint& checkpoint);

struct ResumeBatch {
  // Sequences per data-parallel rank in one pass of the step's graph, and the number of
  // data-parallel ranks.
  int64_t local = 1;
  int64_t ranks = 1;
};
// Fails if `now` is another run; the error lists both values of each difference. If the global
// batch differs, it states the flags that keep it. Returns remarks about settings that differ.
Result<std::vector<std::string>> CheckSameRun(const Checkpoint& checkpoint, const RunState& now,
                                              const ResumeBatch& batch);

// Returns the constants that differ, with both values: `norm_eps 1e-05 and 1e-06`.
std::vector<std::string> DifferentConstants(const ModelConfig& a, const ModelConfig& b);

}  // namespace heddle::run
