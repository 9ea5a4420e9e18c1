// What a checkpoint says about itself: which files it has, with their hashes, and where the pieces of each tensor are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/run/checkpoint/disk.h"
#include "heddle/run/checkpoint/grid.h"

namespace heddle::run {

// Of the format. A reader refuses what is newer.
constexpr int64_t kCheckpointVersion = 1;
constexpr const char* kManifestName = "manifest.json";
// Deeper values cannot be among the state of a run.
constexpr int kStateDepth = 32;

// `rank-00003.safetensors`; and `rank-00003.json`, by which a rank tells rank 0 that its file is written.
std::string RankFileName(int64_t rank);
std::string RankMarkName(int64_t rank);
// `step-00000010`, and back; and what a step is called while it is being written or removed.
std::string StepFolderName(int64_t step);
std::optional<int64_t> ParseStepFolderName(std::string_view name);
std::string PartialFolderName(int64_t step, const std::string& run);
bool IsPartialFolderName(std::string_view name);

// A slice of a tensor.
struct HeldPiece {
  TensorInfo tensor;
  Slice slice;
};

// What a rank has written.
struct RankRecord {
  FileHash file;
  // Those without elements are not in the file; they tell that there is such a tensor.
  std::vector<HeldPiece> pieces;
};
std::string FormatMark(const RankRecord& record);
// Instead, if a rank could not write its file.
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
  // By name, sorted.
  std::vector<Tensor> tensors;
};

// Fails unless what the ranks have written makes up whole tensors.
Result<Manifest> MakeManifest(int64_t step, const std::string& state,
                              const std::vector<RankRecord>& ranks);
std::string FormatManifest(const Manifest& manifest);
// Fails for another version (kVersion), and for a text that is not what was written (kCheckpointDamaged).
Result<Manifest> ParseManifest(std::string_view text);

}  // namespace heddle::run
