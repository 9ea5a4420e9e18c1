// One save: from bytes in memory to a folder with the name of its step.
#pragma once

#include <atomic>
#include <chrono>

#include "heddle/run/checkpoint/manifest.h"

namespace heddle::run {

// What a rank of this process writes.
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
  // Rising ranks.
  std::vector<RankContent> ranks;
};

// Writes the files of this process. With rank 0 it then waits for those of the others, writes the manifest, gives the folder its name and
// removes checkpoints that are not to be kept. On failure nothing of this step is left, and all older checkpoints are. Waiting ends
// when `give_up` is set.
Status RunSave(const SaveJob& job, const std::atomic<bool>& give_up);

// Removes a checkpoint so that whoever looks meanwhile sees all of it or nothing.
Status RemoveStep(const std::string& folder, int64_t step, const std::string& run);

}  // namespace heddle::run
