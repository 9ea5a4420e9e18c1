// CheckpointWriter: saves the state of a run while it goes on.
//
// A step is written aside, every file made durable, then the manifest, then the folder gets its name (docs/checkpoints.md). Whenever
// this process dies, what the folder held before is whole, and the new step is there whole or not at all.
//
// Ranks that are processes share the folder and nothing else: each writes its file and a mark, rank 0 waits for the marks. So a save
// needs no communicator, and runs on a thread of its own beside collectives.
//
//   HEDDLE_TRY(auto writer, CheckpointWriter::Open({.folder = "out", .world = 4, .ranks = {0, 1, 2, 3}}));
//   writer->Save({.step = 10, .state = R"({"tokens": 81920})", .pieces = ...});   // copies, and returns
//   writer->Finish();
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"
#include "heddle/run/checkpoint/piece.h"

namespace heddle::run {

struct CheckpointWriterOptions {
  // Made if it is not there.
  std::string folder;
  // The ranks of the run, and those of this process, rising.
  int64_t world = 1;
  std::vector<int64_t> ranks = {0};
  // So many of the newest stay; all of them if 0.
  int64_t keep = 2;
  // The step that the run begins after. A whole checkpoint of a later step is not overwritten: Open fails.
  int64_t begin_step = 0;
  // A word that all ranks of this run share and no other run has, of letters, digits and dashes. May be empty if this process has
  // all ranks.
  std::string run;
  // How long rank 0 waits for the files of the others.
  std::chrono::milliseconds timeout{300'000};
  // Files beside the checkpoints, by name, for whoever repeats the run: `job.toml`, `graph.hd`, `step.plan`. Rank 0 writes them.
  std::vector<std::pair<std::string, std::string>> texts = {};
};

// A slice of a tensor that a rank of this process holds.
struct SnapshotPiece {
  // The tensor, the slice and the rank that writes it. Pieces of a tensor over all ranks make a grid that covers it, each once:
  // see IsFirstHolder. Slices without elements may be left out or not.
  TensorInfo tensor;
  Slice slice;
  int64_t rank = 0;
  // Puts the bytes of the slice at `to`, in row order without gaps.
  std::function<void(void* to)> copy;
};

struct Snapshot {
  int64_t step = 0;
  // Whatever else the run needs to go on, as JSON. That of rank 0 is written.
  std::string state = "{}";
  std::vector<SnapshotPiece> pieces;
};

// A save that has ended well.
struct SavedCheckpoint {
  int64_t step = 0;
  // Written by this process, and how long that took, waiting for others included.
  Bytes bytes{0};
  double seconds = 0;
};

class CheckpointWriter {
 public:
  // With rank 0: takes the lock of the folder, which fails with the holder's name if another job has it; removes what
  // interrupted saves left. Let rank 0 open before the others save.
  static Result<std::unique_ptr<CheckpointWriter>> Open(CheckpointWriterOptions options);
  // Gives up waiting for other ranks; what is being written ends first.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for the save before, copies the snapshot, and writes it in the background. A failure is that of the save before, or of a
  // snapshot that cannot be written; after a failed save the new one is under way all the same, and older checkpoints are as they were.
  Status Save(const Snapshot& snapshot);
  // Waits for the save under way. Tells a failure once.
  Status Finish();
  // The last save that has ended well, as far as Save and Finish have seen.
  const std::optional<SavedCheckpoint>& last() const;

 private:
  class Impl;
  explicit CheckpointWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::run
