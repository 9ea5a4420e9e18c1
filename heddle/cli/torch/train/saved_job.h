// A job from the folder of its checkpoints: the model that was trained, and its weights.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "heddle/cli/torch/train/training_flags.h"

namespace heddle {

struct SavedJob {
  // As job.toml has them.
  std::unique_ptr<TrainingFlags> flags;
  // For one sequence. Sources of weights refer to it.
  std::unique_ptr<run::Model> model;
  int64_t step = 0;
  // Whether tokens are bytes of text.
  bool text = false;
  // Path of the tokenizer that made tokens of a text; empty: none.
  std::string tokenizer;
  run::ParamSource params;
  // What was passed over on the way to the newest checkpoint that is whole.
  std::vector<std::string> notes;
};

// The newest checkpoint, or that of a step.
Result<SavedJob> OpenSavedJob(const std::string& folder, std::optional<int64_t> step);

}  // namespace heddle
