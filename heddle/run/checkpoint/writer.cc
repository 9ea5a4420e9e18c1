#include "heddle/run/checkpoint/writer.h"

#include <algorithm>
#include <csignal>
#include <future>
#include <map>

#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/json.h"
#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/lock.h"
#include "heddle/run/checkpoint/safetensors.h"
#include "heddle/run/checkpoint/save.h"

namespace heddle::run {
namespace {

using Options = CheckpointWriterOptions;
using Clock = std::chrono::steady_clock;

bool HasRankZero(const Options& options) { return options.ranks[0] == 0; }

Status CheckOptions(const Options& options) {
  bool ranks =
      !options.ranks.empty() && options.ranks[0] >= 0 && options.ranks.back() < options.world &&
      std::ranges::adjacent_find(options.ranks, std::greater_equal()) == options.ranks.end();
  HEDDLE_CHECK(ranks, "a checkpoint writer needs ascending ranks below its world size");
  HEDDLE_CHECK(!options.run.empty() || static_cast<int64_t>(options.ranks.size()) == options.world,
               "several processes need a common name of the run");
  HEDDLE_CHECK(std::ranges::all_of(options.run,
                                   [](char c) {
                                     return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                            (c >= 'A' && c <= 'Z') || c == '-';
                                   }),
               "the name of a run must consist of letters, digits and dashes");
  if (options.keep < 0)
    return Error(Diag::kUsage,
                 "cannot keep {} checkpoints; give a positive number, or 0 to keep all",
                 options.keep);
  if (options.folder.empty()) return Error(Diag::kUsage, "no folder is given for checkpoints");
  return Done{};
}

// Removes partial folders of interrupted saves. The lock excludes other writers.
Status RemovePartials(const std::string& folder) {
  HEDDLE_TRY(std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    if (IsPartialFolderName(name)) HEDDLE_RETURN_IF_ERROR(RemoveTree(folder + "/" + name));
  }
  return Done{};
}

// Damaged later checkpoints are ignored: the run replaces them.
Status CheckNoneLater(const Options& options) {
  HEDDLE_TRY(std::vector<ListedCheckpoint> list, ListCheckpoints(options.folder));
  for (const ListedCheckpoint& listed : list) {
    if (listed.step <= options.begin_step) continue;
    if (!listed.checkpoint && listed.problem[0].kind == Diag::kVersion)
      return Failure{listed.problem};
    if (!listed.checkpoint || !VerifyCheckpoint(*listed.checkpoint).ok()) continue;
    return FileError(Diag::kCheckpoint, options.folder,
                     fmt::format("has a checkpoint of step {}, but this run begins at step {}; "
                                 "move it away, or give another folder",
                                 listed.step, options.begin_step));
  }
  return Done{};
}

Status WriteTexts(const Options& options) {
  for (const auto& [name, text] : options.texts) {
    std::string path = options.folder + "/" + name;
    Result<std::string> old = ReadFile(path);
    if (!old.ok() || *old != text) HEDDLE_RETURN_IF_ERROR(WriteFile(path, text));
  }
  return Done{};
}

// Checks that a piece can be saved.
Status CheckPiece(const SnapshotPiece& piece, const std::vector<int64_t>& ranks) {
  HEDDLE_CHECK(std::ranges::binary_search(ranks, piece.rank),
               "a snapshot contains a piece of another process's rank");
  if (IsInside(piece.slice, piece.tensor.shape)) return Done{};
  return Error(Diag::kCheckpoint, "`{}` has shape {}; a slice of {} at {} is outside it",
               piece.tensor.name, FormatSizes(piece.tensor.shape), FormatSizes(piece.slice.shape),
               FormatSizes(piece.slice.offset));
}

// Blocks signals for new threads: only the main threads handle them.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

class CheckpointWriter::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}

  Status Open() {
    HEDDLE_RETURN_IF_ERROR(CheckOptions(options_));
    if (options_.run.empty())
      options_.run = fmt::format("{}-{}", ::getpid(), Clock::now().time_since_epoch().count());
    HEDDLE_RETURN_IF_ERROR(MakeDirectories(options_.folder));
    if (!HasRankZero(options_)) return Done{};
    HEDDLE_TRY(lock_, FolderLock::Take(options_.folder));
    HEDDLE_RETURN_IF_ERROR(RemovePartials(options_.folder));
    HEDDLE_RETURN_IF_ERROR(CheckNoneLater(options_));
    return WriteTexts(options_);
  }

  ~Impl() {
    give_up_ = true;
    (void)Finish().ok();
  }

  Status Save(const Snapshot& snapshot) {
    Status before = Finish();
    HEDDLE_TRY(SaveJob job, Copy(snapshot));
    SignalsHeld held;
    saving_ =
        std::async(std::launch::async, [this, job = std::move(job)]() -> Result<SavedCheckpoint> {
          auto begin = Clock::now();
          HEDDLE_RETURN_IF_ERROR(RunSave(job, give_up_));
          return SavedCheckpoint{job.step, Bytes{buffer_used_},
                                 std::chrono::duration<double>(Clock::now() - begin).count()};
        });
    return before;
  }

  Status Finish() {
    if (!saving_.valid()) return Done{};
    HEDDLE_TRY(last_, saving_.get());
    return Done{};
  }

  const std::optional<SavedCheckpoint>& last() const { return last_; }

 private:
  // Copies the bytes of all pieces into one buffer, rank by rank.
  Result<SaveJob> Copy(const Snapshot& snapshot) {
    HEDDLE_TRY(JsonDocument state, JsonDocument::Parse(snapshot.state, "the state of a run",
                                                       Diag::kFileRead, kStateDepth));
    if (!state.root().is_object())
      return state.Fail(state.root(), "is {}, expected an object", Describe(state.root()));
    SaveJob job{.folder = options_.folder,
                .run = options_.run,
                .step = snapshot.step,
                .world = options_.world,
                .keep = options_.keep,
                .timeout = options_.timeout,
                .state = snapshot.state,
                .ranks = {}};
    std::map<int64_t, std::vector<const SnapshotPiece*>> by_rank;
    for (int64_t rank : options_.ranks) by_rank[rank];
    int64_t size = 0;
    for (const SnapshotPiece& piece : snapshot.pieces) {
      HEDDLE_RETURN_IF_ERROR(CheckPiece(piece, options_.ranks));
      by_rank[piece.rank].push_back(&piece);
      size += BytesOf(piece.tensor.dtype, piece.slice.shape);
    }
    if (size > buffer_size_) {
      buffer_.reset();
      buffer_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(size));
      buffer_size_ = size;
    }
    buffer_used_ = 0;
    for (auto& [rank, pieces] : by_rank) {
      HEDDLE_TRY(RankContent content, CopyRank(rank, pieces));
      job.ranks.push_back(std::move(content));
    }
    return job;
  }

  Result<RankContent> CopyRank(int64_t rank, std::vector<const SnapshotPiece*>& pieces) {
    RankContent content;
    content.rank = rank;
    // Sorted by element size, so that every piece begins at a multiple of it.
    std::ranges::stable_sort(pieces, std::greater(), [](const SnapshotPiece* piece) {
      return ItemSize(piece->tensor.dtype);
    });
    std::vector<TensorInfo> in_file;
    const char* begin = buffer_.get() + buffer_used_;
    for (const SnapshotPiece* piece : pieces) {
      content.pieces.push_back({piece->tensor, piece->slice});
      int64_t bytes = BytesOf(piece->tensor.dtype, piece->slice.shape);
      if (bytes == 0) continue;
      in_file.push_back({piece->tensor.name, piece->tensor.dtype, piece->slice.shape});
      piece->copy(buffer_.get() + buffer_used_);
      buffer_used_ += bytes;
    }
    HEDDLE_TRY(content.header, FormatSafetensorsHeader(in_file));
    content.bytes = {begin, static_cast<size_t>(buffer_.get() + buffer_used_ - begin)};
    return content;
  }

  Options options_;
  FolderLock lock_;
  std::atomic<bool> give_up_{false};
  std::unique_ptr<char[]> buffer_;
  int64_t buffer_size_ = 0;
  int64_t buffer_used_ = 0;
  std::optional<SavedCheckpoint> last_;
  // Declared last, because the thread uses all members above.
  std::future<Result<SavedCheckpoint>> saving_;
};

CheckpointWriter::CheckpointWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointWriter::~CheckpointWriter() = default;

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Open(CheckpointWriterOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  HEDDLE_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<CheckpointWriter>(new CheckpointWriter(std::move(impl)));
}

Status CheckpointWriter::Save(const Snapshot& snapshot) { return impl_->Save(snapshot); }
Status CheckpointWriter::Finish() { return impl_->Finish(); }
const std::optional<SavedCheckpoint>& CheckpointWriter::last() const { return impl_->last(); }

}  // namespace heddle::run
