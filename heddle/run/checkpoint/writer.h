// CheckpointWriter: saves the state of a run in the background.
//
// A save writes the files into a partial folder, syncs them to the disk, writes the manifest, and
// renames the folder (docs/checkpoints.md). If the process dies at any time, older checkpoints are
// unchanged, and the new one is complete or absent.
//
// Ranks in separate processes share only the folder. Each writes its file and a mark, and rank 0
// waits for the marks. So a save needs no communicator, and runs on its own thread alongside
// collectives.
//
//   HEDDLE_TRY(auto writer, CheckpointWriter::Open({.folder = "out", .world = 4,
//                                                   .ranks = {0, 1, 2, 3}}));
//   writer->Save({.step = 10, .state = R"({"tokens": 81920})", .pieces = ...});  // copies
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
  // Created if missing.
  std::string folder;
  // World size of the run, and the ranks of this process in ascending order.
  int64_t world = 1;
  std::vector<int64_t> ranks = {0};
  // The step after which the run begins. Open fails if there is a complete checkpoint of a later
  // step.
  int64_t keep = 2;
  // A name that all ranks of this run share, and no other run has. Consists of letters, digits and
  // dashes. May be empty if this process has all ranks.
  int64_t begin_step = 0;
  // A name that all ranks of this run share, and no other run has. Consists of letters, digits and
  // dashes. May be empty if this process has all ranks.
  std::string run;
  // How long rank 0 waits for the files of the other ranks.
  std::chrono::milliseconds timeout{300'000};
  // Files to write next to the checkpoints, by name, for reproducing the run: `job.toml`,
  // `graph.hd`, `step.plan`. Rank 0 writes them.
  std::vector<std::pair<std::string, std::string>> texts = {};
};

// A slice of a tensor that a rank of this process saves.
struct SnapshotPiece {
  // The tensor, the slice and the rank that writes it. The pieces of all ranks must form a grid
  // that covers the tensor exactly once: see IsFirstHolder. Slices without elements may be left
  // out.
  TensorInfo tensor;
  Slice slice;
  int64_t rank = 0;
  // Writes the bytes of the slice to `to`, in row-major order without gaps.
  std::function<void(void* to)> copy;
};

struct Snapshot {
  int64_t step = 0;
  // Further state for resuming the run, as JSON. Only rank 0's is written.
  std::string state = "{}";
  std::vector<SnapshotPiece> pieces;
};

// A successful save.
struct SavedCheckpoint {
  int64_t step = 0;
  // Bytes written by this process, and the duration, including the wait for other ranks.
  Bytes bytes{0};
  double seconds = 0;
};

class CheckpointWriter {
 public:
  // In the process of rank 0: takes the lock of the folder and removes partial folders. Fails if
  // another job has the lock. Rank 0 must open its writer before other ranks save.
  static Result<std::unique_ptr<CheckpointWriter>> Open(CheckpointWriterOptions options);
  // Stops waiting for other ranks, but completes a write in progress.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for the previous save, copies the snapshot, and writes it in the background. Returns the
  // failure of the previous save, or of a snapshot that cannot be saved. After a failed save the
  // new save starts nevertheless, and older checkpoints are unchanged.
  Status Save(const Snapshot& snapshot);
  // Waits for the save in progress. Reports each failure once.
  Status Finish();
  // The last successful save that Save and Finish have seen.
  const std::optional<SavedCheckpoint>& last() const;

 private:
  class Impl;
  explicit CheckpointWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::run
