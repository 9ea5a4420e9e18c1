// Saves one step: from bytes in memory to a folder named after the step.
#pragma once

#include <atomic>
#include <chrono>

#include "heddle/run/checkpoint/manifest.h"

namespace heddle::run {

// The content that a rank of this process writes.
struct RankContent {
  int64_t rank = 0;
  std::vector<HeldPiece> pieces;
  // The file: length and header, then the bytes of the pieces.
  std::string header;
  std::string_view bytes;
};

struct SaveJob {
  std::string folder;
  std::string run;
  int64_t step = 0;
  int64_t world = 1;
  int64_t keep = 0;
  std::chrono::milliseconds timeout{};
  // JSON.
  std::string state;
  // In ascending order.
  std::vector<RankContent> ranks;
};

// Writes the files of this process. In the process of rank 0 it also waits for the files of the
// other ranks, writes the manifest, renames the folder to its final name, and removes old
// checkpoints. After a failure nothing of this step is left, and older checkpoints are unchanged.
// Setting `give_up` ends the wait.
Status RunSave(const SaveJob& job, const std::atomic<bool>& give_up);

// Removes a checkpoint atomically: other processes see all of it or nothing.
Status RemoveStep(const std::string& folder, int64_t step, const std::string& run);

}  // namespace heddle::run
