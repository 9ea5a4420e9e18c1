// Reads checkpoints: lists those of a folder, checks that they are complete, and reads any slice of
// any tensor.
//
// Nothing in a checkpoint is trusted: the sizes and hashes of all its files are compared with its
// manifest before a tensor is read. A checkpoint can be read on another mesh than it was written
// on. Only the bytes of the requested slice are read.
//
//   HEDDLE_TRY(std::optional<Checkpoint> found, OpenCheckpoint("out"));
//   if (found) {
//     for (const std::string& note : found->notes()) ...   // newer checkpoints that were skipped
//     HEDDLE_RETURN_IF_ERROR(found->CheckTensors(expected));
//     HEDDLE_RETURN_IF_ERROR(found->Read("layers.0.w", SliceOf(whole, placement, mesh, rank), to));
//   }
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"
#include "heddle/run/checkpoint/piece.h"

namespace heddle::run {

struct OpenCheckpointOptions {
  // Opens this step, which must be complete. Unset: opens the newest complete one.
  std::optional<int64_t> step = {};
  // Ignores checkpoints of later steps.
  std::optional<int64_t> newest = {};
  // Hashes only the files of ranks r with r % parts == part, so that processes share the work. Each
  // process opens a checkpoint, and all compare their `step()`. While they differ, all open again
  // with the smallest as `newest`.
  int64_t part = 0;
  int64_t parts = 1;
};

class Checkpoint {
 public:
  int64_t step() const;
  // World size of the run that wrote it.
  int64_t world() const;
  // The JSON of `Snapshot::state`.
  const std::string& state() const;
  // Sorted by name.
  const std::vector<TensorInfo>& tensors() const;
  // Null if there is no tensor of this name.
  const TensorInfo* Find(const std::string& name) const;
  // Number of pieces that a tensor is split into.
  int64_t PieceCount(const std::string& name) const;
  Bytes bytes() const;
  const std::string& path() const;
  // The newer checkpoints that were skipped, and why.
  const std::vector<std::string>& notes() const;

  // Fails unless these are the tensors of the checkpoint, in any order. The error lists tensors
  // that are missing, unexpected, or have another shape or element type.
  Status CheckTensors(const std::vector<TensorInfo>& expected) const;

  // Writes the slice to `to`, in row-major order without gaps. Thread-safe.
  Status Read(const std::string& name, const Slice& slice, void* to) const;

 private:
  friend class CheckpointReader;
  class Impl;
  explicit Checkpoint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// Opens a checkpoint of a folder. Returns nullopt if the folder is missing or has no checkpoint.
// Fails in these cases:
//
// - The folder has checkpoints, but none is complete.
// - A newer heddle wrote the newest one.
// - `step` is given, and its checkpoint is missing or incomplete.
Result<std::optional<Checkpoint>> OpenCheckpoint(const std::string& folder,
                                                 const OpenCheckpointOptions& options = {});

// A step in a folder. Its manifest and the sizes of its files are checked, but not the hashes.
struct ListedCheckpoint {
  int64_t step = 0;
  std::string path;
  // Unset if it is incomplete; `problem` states why.
  std::optional<Checkpoint> checkpoint;
  Diagnostics problem;
};
// Lists the checkpoints of a folder by ascending step, without interrupted saves. Empty if the
// folder is missing.
Result<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& folder);

// Reads every byte. Fails, and lists every file that differs from the manifest.
Status VerifyCheckpoint(const Checkpoint& checkpoint);

}  // namespace heddle::run
