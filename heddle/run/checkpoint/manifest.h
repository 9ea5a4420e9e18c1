// The manifest of a checkpoint: its files with their hashes, and the pieces of each tensor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/run/checkpoint/disk.h"
#include "heddle/run/checkpoint/grid.h"

namespace heddle::run {

// Version of the format. Readers reject newer versions.
constexpr int64_t kCheckpointVersion = 1;
constexpr const char* kManifestName = "manifest.json";
// Maximum nesting depth of the state of a run.
constexpr int kStateDepth = 32;

// File names: `rank-00003.safetensors`, and its mark `rank-00003.json`. With the mark, a rank tells
// rank 0 that its file is complete.
std::string RankFileName(int64_t rank);
std::string RankMarkName(int64_t rank);
// Names of folders: `step-00000010` for a step, and a partial name while the step is written or
// removed.
std::string StepFolderName(int64_t step);
std::optional<int64_t> ParseStepFolderName(std::string_view name);
std::string PartialFolderName(int64_t step, const std::string& run);
bool IsPartialFolderName(std::string_view name);

// A slice of a tensor.
struct HeldPiece {
  TensorInfo tensor;
  Slice slice;
};

// The result of writing one rank's file.
struct RankRecord {
  FileHash file;
  // Pieces without elements are not in the file, but they show that the tensor exists.
  std::vector<HeldPiece> pieces;
};
std::string FormatMark(const RankRecord& record);
// The mark of a rank that could not write its file.
std::string FormatFailureMark(std::string_view why);
Result<RankRecord> ParseMark(std::string_view text);

struct Manifest {
  struct Tensor {
    TensorInfo info;
    std::vector<PlacedPiece> pieces;
    Grid grid;
  };

  int64_t step = 0;
  // JSON of the run.
  std::string state;
  // By rank.
  std::vector<FileHash> files;
  // Sorted by name.
  std::vector<Tensor> tensors;
};

// Fails unless the pieces of the ranks form whole tensors.
Result<Manifest> MakeManifest(int64_t step, const std::string& state,
                              const std::vector<RankRecord>& ranks);
std::string FormatManifest(const Manifest& manifest);
// Fails for a newer version (kVersion), and for a damaged text (kCheckpointDamaged).
Result<Manifest> ParseManifest(std::string_view text);

}  // namespace heddle::run
