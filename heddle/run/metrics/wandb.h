// The file of a Weights & Biases run that was recorded offline; `wandb sync` uploads it.
//
//   FOLDER/wandb/offline-run-20260102_030405-ID/run-ID.wandb
//
// The file is a log of LevelDB's format with a record of W&B (wandb_internal.proto) per entry. It
// is complete after every step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/run/metrics/metrics_file.h"

namespace heddle::run {

struct WandbOptions {
  std::string folder;
  // Without `id`, the name begins with this: letters and digits that identify the job. A second run
  // of the job in one folder gets `-2` at the end.
  std::string job = {};
  // The id of the run, if the user gives it.
  std::string id = {};
  // Empty: those of `wandb sync`.
  std::string project = {};
  std::string entity = {};
  // The name that W&B shows; empty: it makes one.
  std::string name = {};
  std::string version = {};
  // JSON of the values, by key.
  std::vector<std::pair<std::string, std::string>> config = {};
};

// Opens a file. A run that resumes after a step continues the latest file of its id: keeps the
// steps up to there, as an uninterrupted run has them. Without such a file it begins a new one.
Result<std::unique_ptr<MetricsFile>> OpenWandb(const WandbOptions& options, int64_t after_step);

// --- The log of records

// The bytes of a record at an offset of a file.
std::string WandbFrame(std::string_view record, uint64_t offset);

// The records of a file, up to the first damaged one. Fails if it does not begin like such a file;
// `path` names it.
Result<std::vector<std::string>> ReadWandbRecords(std::string_view file, const std::string& path);

}  // namespace heddle::run
