// Saves and reads a checkpoint, and prints the times. bench/checkpoint_bench.py compares them with
// dd.
//
//   heddle-checkpoint-speed FOLDER MIB
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <unistd.h>

#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/manifest.h"
#include "heddle/run/checkpoint/writer.h"

namespace heddle {
namespace {

constexpr int64_t kRanks = 4;
constexpr int64_t kTensors = 16;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

run::TensorInfo Tensor(int64_t number, int64_t mib) {
  return {fmt::format("layers.{}.w", number), DType::kF32, {mib, (int64_t{1} << 18) / kTensors}};
}

run::Slice PartOf(const run::TensorInfo& tensor, int64_t rank) {
  int64_t rows = tensor.shape[0] / kRanks;
  return {{rank * rows, 0}, {rows, tensor.shape[1]}};
}

// Drops the page cache, so that reads come from the disk.
void ForgetCache(const std::string& folder) {
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    int fd = ::open((folder + "/" + run::RankFileName(rank)).c_str(), O_RDONLY);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

Status Measure(const std::string& folder, int64_t mib) {
  auto bytes = static_cast<size_t>(mib << 20);
  auto memory = std::make_unique_for_overwrite<char[]>(bytes);
  for (size_t i = 0; i < bytes; ++i) memory[i] = static_cast<char>(i * 2654435761u >> 13);
  HEDDLE_TRY(auto writer,
             run::CheckpointWriter::Open(
                 {.folder = folder, .world = kRanks, .ranks = {0, 1, 2, 3}, .keep = 0, .run = ""}));
  run::Snapshot snapshot;
  char* at = memory.get();
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    for (int64_t t = 0; t < kTensors; ++t) {
      run::TensorInfo tensor = Tensor(t, mib);
      run::Slice slice = PartOf(tensor, rank);
      auto size = static_cast<size_t>(run::BytesOf(tensor.dtype, slice.shape));
      snapshot.pieces.push_back(
          {tensor, slice, rank, [at, size](void* to) { std::memcpy(to, at, size); }});
      at += size;
    }
  }
  // The first save allocates the buffer; the second has the speed that runs see.
  for (snapshot.step = 1; snapshot.step <= 2; ++snapshot.step) {
    double begin = Now();
    HEDDLE_RETURN_IF_ERROR(writer->Save(snapshot));
    double copied = Now();
    HEDDLE_RETURN_IF_ERROR(writer->Finish());
    std::printf("{\"step\": %ld, \"copy_s\": %.4f, \"write_s\": %.4f}\n", snapshot.step,
                copied - begin, Now() - copied);
  }
  ForgetCache(folder + "/" + run::StepFolderName(2));
  double begin = Now();
  HEDDLE_TRY(std::optional<run::Checkpoint> checkpoint, run::OpenCheckpoint(folder));
  double opened = Now();
  at = memory.get();
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    for (int64_t t = 0; t < kTensors; ++t) {
      run::TensorInfo tensor = Tensor(t, mib);
      run::Slice slice = PartOf(tensor, rank);
      HEDDLE_RETURN_IF_ERROR(checkpoint->Read(tensor.name, slice, at));
      at += run::BytesOf(tensor.dtype, slice.shape);
    }
  }
  std::printf("{\"open_s\": %.4f, \"read_s\": %.4f}\n", opened - begin, Now() - opened);
  return Done{};
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  heddle::Status measured = heddle::Measure(argv[1], std::atoll(argv[2]));
  if (measured.ok()) return 0;
  std::fputs(Format(measured.diagnostics()).c_str(), stderr);
  return 1;
}
