// Options of the training loop: data, schedule, validation, checkpoints, log and faults. Error
// messages call a field by its flag.
#pragma once

#include <optional>

#include "heddle/run/data/dataset.h"
#include "heddle/run/models/model.h"
#include "heddle/run/train/schedule.h"
#include "heddle/run/train/step_profile.h"
#include "heddle/run/train/trainer.h"

namespace heddle {

struct LoopOptions {
  std::string dataset = "text";
  // Path of a tokenizer; empty: none.
  std::string tokenizer = {};
  bool shuffle = true;
  bool document_boundaries = false;
  std::optional<int64_t> document_end = {};
  int64_t global_batch_size = 0;

  int64_t warmup_steps = 0;
  run::Decay decay = run::Decay::kNone;
  double decay_ratio = 1;
  double min_lr_factor = 0;

  // Empty: save no checkpoints.
  std::string folder = {};
  int64_t save_interval = 500;
  int64_t keep = 2;
  // Training continues while files are written.
  bool async = true;
  std::optional<int64_t> load_step = {};

  // 0: do not validate.
  int64_t validation_interval = 0;
  int64_t validation_steps = 10;

  // Generates text every N steps; 0: never. Without prompts, the prompt is a newline.
  int64_t sample_every = 0;
  std::vector<std::string> sample_prompts = {};
  int64_t sample_tokens = 64;

  std::string jsonl = {};
  std::string tensorboard = {};
  // Folder for the files of Weights & Biases; empty: none.
  std::string wandb = {};
  std::string cluster = {};
  int64_t log_every = 1;
  // Steps to profile, as `3` or `10:3`; empty: none. Traces are written to `profile_dir`, by
  // default to `profile` in the folder of checkpoints.
  std::string profile = {};
  std::string profile_dir = {};

  run::BadLossPolicy on_nan = run::BadLossPolicy::kStop;
  run::BadLossPolicy on_spike = run::BadLossPolicy::kIgnore;
  double spike_factor = 3;
  int64_t max_restarts = 0;

  // Returns null without `profile`.
  Result<std::unique_ptr<run::StepProfile>> MakeProfile(c10::Device device) const;
  Result<run::Schedule> MakeSchedule(int64_t steps, double lr) const;
  // Opens the dataset for batches of `global_batch` rows.
  Result<std::unique_ptr<run::Dataset>> OpenDataset(const run::Model& model, int64_t global_batch,
                                                    uint64_t seed) const;
};

// Returns rows of the data as tensors. The dataset must outlive the result.
run::BatchSource BatchesOf(const run::Dataset& dataset, run::DataSplit split, int64_t seq_len);

}  // namespace heddle
