#include "heddle/run/checkpoint/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <unordered_map>

#include <sys/stat.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/run/checkpoint/box_reader.h"
#include "heddle/run/checkpoint/manifest.h"
#include "heddle/run/checkpoint/safetensors.h"

namespace heddle::run {
namespace {

// The positions of the tensors in a rank's file. It keeps no file open: a process cannot open as
// many files as a large job has ranks.
struct RankIndex {
  std::once_flag once;
  Diagnostics problem;
  std::unordered_map<std::string, std::pair<int64_t, int64_t>> bytes_by_name;
};

Failure AsDamage(Failure failure) {
  for (Diagnostic& diagnostic : failure.diagnostics) {
    if (diagnostic.kind != Diag::kVersion) diagnostic.kind = Diag::kCheckpointDamaged;
  }
  return failure;
}

Status CheckSize(const std::string& path, int64_t bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return SystemError(Diag::kCheckpointDamaged, path, "find");
  if (S_ISREG(status.st_mode) && status.st_size == bytes) return Done{};
  return FileError(Diag::kCheckpointDamaged, path,
                   fmt::format("has {} bytes, but the manifest specifies {}",
                               static_cast<int64_t>(status.st_size), bytes));
}

Status CheckHash(const std::string& path, const FileHash& expected) {
  HEDDLE_RETURN_IF_ERROR(CheckSize(path, expected.bytes));
  Result<FileHash> found = HashFile(path);
  if (!found.ok()) return AsDamage(std::move(found).failure());
  if (*found == expected) return Done{};
  return FileError(Diag::kCheckpointDamaged, path,
                   fmt::format("has hash {}, but the manifest specifies {}", Format(found->hash),
                               Format(expected.hash)));
}

}  // namespace

class Checkpoint::Impl {
 public:
  Impl(std::string path, Manifest manifest)
      : path(std::move(path)),
        manifest(std::move(manifest)),
        indices_(std::make_unique<RankIndex[]>(this->manifest.files.size())) {
    for (const Manifest::Tensor& tensor : this->manifest.tensors) infos.push_back(tensor.info);
  }

  std::string FileOf(size_t rank) const {
    return path + "/" + RankFileName(static_cast<int64_t>(rank));
  }

  const Manifest::Tensor* Find(const std::string& name) const {
    auto at = std::ranges::lower_bound(manifest.tensors, name, {},
                                       [](const Manifest::Tensor& t) { return t.info.name; });
    return at == manifest.tensors.end() || at->info.name != name ? nullptr : &*at;
  }

  // Returns the byte at which the piece of a tensor begins in a rank's file.
  Result<int64_t> BeginOf(size_t rank, const std::string& name, int64_t bytes) const {
    RankIndex& index = indices_[rank];
    std::call_once(index.once, [&] { Load(rank, index); });
    if (!index.problem.empty()) return Failure{index.problem};
    auto at = index.bytes_by_name.find(name);
    if (at == index.bytes_by_name.end() || at->second.second != bytes)
      return FileError(Diag::kCheckpointDamaged, FileOf(rank),
                       fmt::format("has no piece of `{}` with {} bytes", name, bytes));
    return at->second.first;
  }

  std::string path;
  Manifest manifest;
  std::vector<TensorInfo> infos;
  std::vector<std::string> notes;

 private:
  void Load(size_t rank, RankIndex& index) const {
    Result<SafetensorsFile> file = SafetensorsFile::Open(FileOf(rank));
    if (!file.ok()) {
      index.problem = AsDamage(std::move(file).failure()).diagnostics;
      return;
    }
    for (const SafetensorsFile::Entry& entry : file->entries())
      index.bytes_by_name[entry.name] = {file->data_begin() + entry.begin, entry.end - entry.begin};
  }

  std::unique_ptr<RankIndex[]> indices_;
};

int64_t Checkpoint::step() const { return impl_->manifest.step; }
int64_t Checkpoint::world() const { return static_cast<int64_t>(impl_->manifest.files.size()); }
const std::string& Checkpoint::state() const { return impl_->manifest.state; }
const std::vector<TensorInfo>& Checkpoint::tensors() const { return impl_->infos; }
const std::string& Checkpoint::path() const { return impl_->path; }
const std::vector<std::string>& Checkpoint::notes() const { return impl_->notes; }

const TensorInfo* Checkpoint::Find(const std::string& name) const {
  const Manifest::Tensor* tensor = impl_->Find(name);
  return tensor == nullptr ? nullptr : &tensor->info;
}

int64_t Checkpoint::PieceCount(const std::string& name) const {
  const Manifest::Tensor* tensor = impl_->Find(name);
  return tensor == nullptr ? 0 : tensor->grid.size();
}

Bytes Checkpoint::bytes() const {
  Bytes sum{0};
  for (const FileHash& file : impl_->manifest.files) sum += Bytes{file.bytes};
  return sum;
}

Status Checkpoint::CheckTensors(const std::vector<TensorInfo>& expected) const {
  constexpr size_t kMost = 20;
  Diagnostics problems;
  auto add = [&](std::string what) {
    if (problems.size() < kMost)
      problems.push_back(FileError(Diag::kCheckpoint, path(), what).diagnostics[0]);
    else if (problems.size() == kMost)
      problems.push_back(MakeDiagnostic(Diag::kManyMistakes, "and more"));
  };
  std::unordered_map<std::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : expected) {
    by_name[tensor.name] = &tensor;
    const TensorInfo* found = Find(tensor.name);
    if (found == nullptr) {
      add(fmt::format("has no tensor `{}`, which the run needs", tensor.name));
    } else if (*found != tensor) {
      add(fmt::format("`{}` is {} {}, but {} {} in the run", tensor.name, Name(found->dtype),
                      FormatSizes(found->shape), Name(tensor.dtype), FormatSizes(tensor.shape)));
    }
  }
  for (const TensorInfo& tensor : tensors()) {
    if (!by_name.contains(tensor.name))
      add(fmt::format("has a tensor `{}`, which the run does not have", tensor.name));
  }
  if (problems.empty()) return Done{};
  return Failure{std::move(problems)};
}

Status Checkpoint::Read(const std::string& name, const Slice& slice, void* to) const {
  const Manifest::Tensor* tensor = impl_->Find(name);
  if (tensor == nullptr)
    return FileError(Diag::kCheckpoint, path(), fmt::format("has no tensor `{}`", name));
  const Sizes& whole = tensor->info.shape;
  if (!IsInside(slice, whole))
    return FileError(
        Diag::kCheckpoint, path(),
        fmt::format("`{}` has shape {}; a slice of {} at {} is outside it", name,
                    FormatSizes(whole), FormatSizes(slice.shape), FormatSizes(slice.offset)));
  for (const Grid::Cell& cell : tensor->grid.Cells(slice)) {
    auto rank = static_cast<size_t>(cell.rank);
    HEDDLE_TRY(int64_t begin,
               impl_->BeginOf(rank, name, BytesOf(tensor->info.dtype, cell.piece.shape)));
    HEDDLE_RETURN_IF_ERROR(ReadBox({.path = impl_->FileOf(rank),
                                    .begin = begin,
                                    .item = ItemSize(tensor->info.dtype),
                                    .piece = cell.piece,
                                    .common = cell.common,
                                    .slice = slice},
                                   static_cast<char*>(to)));
  }
  return Done{};
}

// Builds Checkpoint objects from folders.
class CheckpointReader {
 public:
  // Reads the manifest and checks the sizes of the files.
  static Result<Checkpoint> Load(const std::string& path, int64_t step) {
    std::string file = path + "/" + kManifestName;
    if (!Exists(file)) return FileError(Diag::kCheckpointDamaged, file, "is missing");
    Result<std::string> text = ReadFile(file);
    if (!text.ok()) return AsDamage(std::move(text).failure());
    Result<Manifest> manifest = ParseManifest(*text);
    if (!manifest.ok()) return InFile(file, std::move(manifest).failure());
    if (manifest->step != step)
      return FileError(Diag::kCheckpointDamaged, file,
                       fmt::format("is the manifest of step {}", manifest->step));
    auto impl = std::make_shared<Checkpoint::Impl>(path, *std::move(manifest));
    for (size_t rank = 0; rank < impl->manifest.files.size(); ++rank)
      HEDDLE_RETURN_IF_ERROR(CheckSize(impl->FileOf(rank), impl->manifest.files[rank].bytes));
    return Checkpoint(std::move(impl));
  }

  static Status Verify(const Checkpoint& checkpoint, int64_t part, int64_t parts) {
    const Checkpoint::Impl& impl = *checkpoint.impl_;
    auto first = static_cast<size_t>(part), step = static_cast<size_t>(parts);
    size_t files = impl.manifest.files.size();
    size_t count = first < files ? (files - first + step - 1) / step : 0;
    return ForEachFile(count, [&](size_t i) {
      size_t rank = first + i * step;
      return CheckHash(impl.FileOf(rank), impl.manifest.files[rank]);
    });
  }

  // Stores the notes about skipped checkpoints. No one else refers to the checkpoint yet.
  static void SetNotes(Checkpoint& checkpoint, std::vector<std::string> notes) {
    const_cast<Checkpoint::Impl&>(*checkpoint.impl_).notes = std::move(notes);
  }
};

namespace {

// Returns the steps in a folder, in ascending order.
Result<std::vector<int64_t>> StepsIn(const std::string& folder) {
  HEDDLE_TRY(std::vector<std::string> names, NamesIn(folder));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (auto step = ParseStepFolderName(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

Result<Checkpoint> OpenStep(const std::string& folder, int64_t step,
                            const OpenCheckpointOptions& options) {
  HEDDLE_TRY(Checkpoint checkpoint,
             CheckpointReader::Load(folder + "/" + StepFolderName(step), step));
  HEDDLE_RETURN_IF_ERROR(CheckpointReader::Verify(checkpoint, options.part, options.parts));
  return checkpoint;
}

bool IsVersionProblem(const Diagnostics& problem) {
  return std::ranges::any_of(problem, [](const Diagnostic& d) { return d.kind == Diag::kVersion; });
}

}  // namespace

Result<std::optional<Checkpoint>> OpenCheckpoint(const std::string& folder,
                                                 const OpenCheckpointOptions& options) {
  HEDDLE_CHECK(options.part >= 0 && options.part < options.parts,
               "`part` must be less than `parts`");
  HEDDLE_TRY(std::vector<int64_t> steps, StepsIn(folder));
  if (options.step) {
    if (std::ranges::count(steps, *options.step) == 0)
      return FileError(Diag::kCheckpoint, folder,
                       fmt::format("has no checkpoint of step {}; it has {}", *options.step,
                                   steps.empty() ? std::string("none")
                                                 : fmt::format("{}, the newest of step {}",
                                                               Counted(steps.size(), "checkpoint"),
                                                               steps.back())));
    HEDDLE_TRY(Checkpoint checkpoint, OpenStep(folder, *options.step, options));
    return std::optional(std::move(checkpoint));
  }
  if (options.newest) std::erase_if(steps, [&](int64_t step) { return step > *options.newest; });
  std::vector<std::string> notes;
  Diagnostics first_problem;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    Result<Checkpoint> opened = OpenStep(folder, *step, options);
    if (opened.ok()) {
      CheckpointReader::SetNotes(*opened, std::move(notes));
      return std::optional(*std::move(opened));
    }
    // Older checkpoints lack the progress that a newer heddle saved.
    if (IsVersionProblem(opened.diagnostics())) return std::move(opened).failure();
    if (first_problem.empty()) first_problem = opened.diagnostics();
    const Diagnostic& why = opened.diagnostics()[0];
    notes.push_back(fmt::format("skipped step {}: {}{}{}", *step, why.file,
                                why.file.empty() ? "" : ": ", why.message));
  }
  if (steps.empty()) return std::optional<Checkpoint>();
  first_problem.push_back(
      FileError(Diag::kCheckpointDamaged, folder,
                fmt::format("has {}, none of them complete", Counted(steps.size(), "checkpoint")))
          .diagnostics[0]);
  return Failure{std::move(first_problem)};
}

Result<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& folder) {
  HEDDLE_TRY(std::vector<int64_t> steps, StepsIn(folder));
  std::vector<ListedCheckpoint> list;
  for (int64_t step : steps) {
    std::string path = folder + "/" + StepFolderName(step);
    Result<Checkpoint> loaded = CheckpointReader::Load(path, step);
    ListedCheckpoint& listed = list.emplace_back(ListedCheckpoint{step, path, {}, {}});
    if (loaded.ok())
      listed.checkpoint = *std::move(loaded);
    else
      listed.problem = loaded.diagnostics();
  }
  return list;
}

Status VerifyCheckpoint(const Checkpoint& checkpoint) {
  return CheckpointReader::Verify(checkpoint, 0, 1);
}

}  // namespace heddle::run
