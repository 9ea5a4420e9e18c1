// The flags of a training run beside its model, mesh and optimizer: data, schedule, checkpoints, log and faults. TorchTitan's spelling
// where it has one.
#pragma once

#include <optional>

#include "heddle/cli/flags.h"
#include "heddle/data/dataset.h"
#include "heddle/models/model.h"
#include "heddle/train/schedule.h"
#include "heddle/train/trainer.h"

namespace heddle {

struct JobFlags {
  std::string dataset = "text";
  std::string shuffle = "true";
  bool document_boundaries = false;
  std::optional<int64_t> document_end;
  int64_t global_batch_size = 0;

  int64_t warmup_steps = 0;
  std::string decay = "none";
  double decay_ratio = 1;
  double min_lr_factor = 0;

  bool save_checkpoints = true;
  // Empty also if checkpoints are disabled.
  std::string folder;
  int64_t save_interval = 500;
  int64_t keep = 2;
  std::string async = "true";
  std::optional<int64_t> load_step;

  bool validate = true;
  // 0 also if validation is disabled.
  int64_t validation_interval = 0;
  int64_t validation_steps = 10;

  std::string jsonl;
  bool write_events = true;
  // Empty also if events are disabled.
  std::string tensorboard;
  std::string cluster;
  int64_t log_every = 1;

  std::string on_nan = "stop";
  std::string on_spike = "ignore";
  double spike_factor = 3;
  int64_t max_restarts = 0;

  void Declare(Flags& flags);
  // Data, learning rate and validation alone: what decides the numbers of a run.
  void DeclareSteps(Flags& flags);
  Result<Schedule> MakeSchedule(int64_t steps, double lr) const;
  Result<OddLoss> OnNotFinite() const;
  Result<OddLoss> OnSpike() const;
  // For batches of `global_batch` rows.
  Result<std::unique_ptr<Dataset>> OpenDataset(const Model& model, int64_t global_batch,
                                               uint64_t seed) const;
};

// Rows of the data as tensors. The dataset must outlive it.
BatchSource BatchesOf(const Dataset& dataset, DataSplit split, int64_t seq_len);

}  // namespace heddle
