// The state that a checkpoint stores besides tensors: which model, data and settings the run has.
//
// Model, flavor, constants of the model, seed and data identify a run: it resumes only with the
// same ones. Settings, such as the optimizer's, may change; differences become remarks.
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
  // The largest token of the data. Not set if only a part was checked.
  std::optional<int64_t> largest_token = {};
  // Flags without dashes and their values: `optimizer.lr`, `0.0008`.
  std::vector<std::pair<std::string, std::string>> settings;
};

// JSON.
std::string FormatRunState(const RunState& state);

// The part of a checkpoint's state that commands need.
struct SavedRunState {
  // Not set for checkpoints of versions that did not store constants.
  std::optional<ModelConfig> config;
  bool text = false;
  std::optional<int64_t> largest_token;
};
// Fails for a model that this version does not have.
Result<SavedRunState> ReadRunState(const Checkpoint& checkpoint);

struct ResumeBatch {
  // Sequences that a data-parallel rank takes at a time, and the number of these ranks.
  int64_t local = 1;
  int64_t ranks = 1;
};
// Fails if `now` is another run, with both values of each difference. Returns remarks about
// settings that differ. If the global batch differs, the failure states the flags that keep it.
Result<std::vector<std::string>> CheckSameRun(const Checkpoint& checkpoint, const RunState& now,
                                              const ResumeBatch& batch);

// Names of constants that differ, with both values: `norm_eps 1e-05 and 1e-06`.
std::vector<std::string> DifferentConstants(const ModelConfig& a, const ModelConfig& b);

}  // namespace heddle::run
