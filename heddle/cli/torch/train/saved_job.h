// Loads a job from its checkpoint folder: the trained model and its weights.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "heddle/cli/torch/train/training_flags.h"

namespace heddle {

struct SavedJob {
  // The flags in job.toml.
  std::unique_ptr<TrainingFlags> flags;
  // For batches of one sequence. Sources of weights refer to it.
  std::unique_ptr<run::Model> model;
  int64_t step = 0;
  // Whether tokens are bytes of text.
  bool text = false;
  // Folder of the job's tokenizer: that of --tokenizer, or of the initial weights. Empty: none.
  std::string tokenizer;
  run::ParamSource params;
  // Incomplete checkpoints that were skipped.
  std::vector<std::string> notes;
};

// Opens the newest checkpoint, or the checkpoint of `step`.
Result<SavedJob> OpenSavedJob(const std::string& folder, std::optional<int64_t> step);

}  // namespace heddle
