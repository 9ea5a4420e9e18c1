// Checkpoints of a folder: which there are, whether they are whole, and any slice of any tensor in them.
//
// A checkpoint is read with distrust: sizes and hashes of all its files are held against its manifest before a tensor is. It can be read
// on another mesh than it was written on; only the bytes of a slice are read.
//
//   HEDDLE_TRY(std::optional<Checkpoint> found, OpenCheckpoint("out"));
//   if (found) {
//     for (const std::string& note : found->notes()) ...   // why a newer one was passed over
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
  // Exactly this step, which must be whole. Without it, the newest that is.
  std::optional<int64_t> step = {};
  // None that is newer than this.
  std::optional<int64_t> newest = {};
  // Hashes only files whose rank has this remainder, so that processes can share the work: each opens, all tell their `step()`, and
  // while they differ all open again with the least of them as `newest`.
  int64_t part = 0;
  int64_t parts = 1;
};

class Checkpoint {
 public:
  int64_t step() const;
  // The ranks that wrote it.
  int64_t world() const;
  // JSON, as the writer gave it.
  const std::string& state() const;
  // By name.
  const std::vector<TensorInfo>& tensors() const;
  // Null if there is none of this name.
  const TensorInfo* Find(const std::string& name) const;
  // Into how many pieces a tensor is split.
  int64_t PieceCount(const std::string& name) const;
  Bytes bytes() const;
  const std::string& path() const;
  // What was passed over on the way to this checkpoint, and why.
  const std::vector<std::string>& notes() const;

  // Fails unless these are the tensors of the checkpoint, whatever their order: with what is missing, unexpected, of another
  // shape or element type.
  Status CheckTensors(const std::vector<TensorInfo>& expected) const;

  // Puts the slice at `to`, in row order without gaps. Safe from several threads.
  Status Read(const std::string& name, const Slice& slice, void* to) const;

 private:
  friend class CheckpointReader;
  class Impl;
  explicit Checkpoint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// None if the folder has no checkpoint, or is not there. Fails if it has some and none is whole, if the newest was written by a newer
// heddle, and if `step` is asked for and not there or not whole.
Result<std::optional<Checkpoint>> OpenCheckpoint(const std::string& folder,
                                                 const OpenCheckpointOptions& options = {});

// A step in a folder, as far as its manifest and the sizes of its files tell; hashes are not read.
struct ListedCheckpoint {
  int64_t step = 0;
  std::string path;
  // None if it is not whole: see `problem`.
  std::optional<Checkpoint> checkpoint;
  Diagnostics problem;
};
// Rising. Saves that were interrupted are not among them. Empty if the folder is not there.
Result<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& folder);

// Reads every byte. Fails with every file that is not what the manifest says.
Status VerifyCheckpoint(const Checkpoint& checkpoint);

}  // namespace heddle::run
