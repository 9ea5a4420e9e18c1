#include "heddle/run/checkpoint/save.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/run/checkpoint/checkpoint.h"

namespace heddle::run {
namespace {

using Clock = std::chrono::steady_clock;

std::string PartialOf(const SaveJob& job) {
  return job.folder + "/" + PartialFolderName(job.step, job.run);
}

// Returns records by rank, empty for ranks of other processes.
Result<std::vector<RankRecord>> WriteRanks(const SaveJob& job) {
  std::string partial = PartialOf(job);
  if (::mkdir(partial.c_str(), 0777) != 0 && errno != EEXIST)
    return SystemError(Diag::kFileWrite, partial, "make the folder");
  std::vector<RankRecord> records(static_cast<size_t>(job.world));
  // After one failure, the other files need not be written.
  std::atomic<bool> failed{false};
  HEDDLE_RETURN_IF_ERROR(ForEachFile(job.ranks.size(), [&](size_t i) -> Status {
    if (failed) return Done{};
    const RankContent& content = job.ranks[i];
    RankRecord& record = records[static_cast<size_t>(content.rank)];
    std::string_view parts[] = {content.header, content.bytes};
    Result<FileHash> file = WriteDurably(partial + "/" + RankFileName(content.rank), parts);
    if (!file.ok() && failed.exchange(true)) return Done{};
    HEDDLE_TRY(record.file, std::move(file));
    record.pieces = content.pieces;
    return Done{};
  }));
  return records;
}

// A process without rank 0 reports its result to rank 0 with marks.
Status LeaveMarks(const SaveJob& job, const Result<std::vector<RankRecord>>& records) {
  for (const RankContent& content : job.ranks) {
    std::string path = PartialOf(job) + "/" + RankMarkName(content.rank);
    std::string text = records.ok() ? FormatMark((*records)[static_cast<size_t>(content.rank)])
                                    : FormatFailureMark(Trim(Format(records.diagnostics())));
    HEDDLE_RETURN_IF_ERROR(WriteFile(path, text));
  }
  return Done{};
}

// Formats ranks as `1, 3 and 5 more`.
std::string RankList(const std::vector<int64_t>& ranks) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kMost) text += fmt::format(" and {} more", ranks.size() - kMost);
  return text;
}

Status ReadMark(const std::string& partial, int64_t rank, RankRecord& record) {
  HEDDLE_TRY(std::string text, ReadFile(partial + "/" + RankMarkName(rank)));
  Result<RankRecord> mark = ParseMark(text);
  if (!mark.ok())
    return Error(Diag::kPeers, "rank {} could not write its part of the checkpoint: {}", rank,
                 mark.diagnostics()[0].message);
  record = *std::move(mark);
  return Done{};
}

// Fills in the records of other processes as their marks appear.
Status WaitForMarks(const SaveJob& job, const std::atomic<bool>& give_up,
                    std::vector<RankRecord>& records) {
  std::string partial = PartialOf(job);
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < job.world; ++rank) {
    if (!std::ranges::binary_search(job.ranks, rank, {}, &RankContent::rank))
      missing.push_back(rank);
  }
  auto deadline = Clock::now() + job.timeout;
  std::chrono::milliseconds pause{1};
  for (;;) {
    std::vector<int64_t> left;
    for (int64_t rank : missing) {
      if (!Exists(partial + "/" + RankMarkName(rank))) {
        left.push_back(rank);
        continue;
      }
      HEDDLE_RETURN_IF_ERROR(ReadMark(partial, rank, records[static_cast<size_t>(rank)]));
    }
    missing = std::move(left);
    if (missing.empty()) return Done{};
    if (give_up) return Error(Diag::kPeers, "the save of step {} was cancelled", job.step);
    if (Clock::now() >= deadline)
      return Error(
          Diag::kPeers, "step {} was not saved: after {} there is no file from {} of {}: {} {}",
          job.step, Format(Nanos{std::chrono::nanoseconds(job.timeout).count()}), missing.size(),
          Counted(job.world, "rank"), missing.size() == 1 ? "rank" : "ranks", RankList(missing));
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
}

// Renames a finished folder to its final name. If the name exists, exchanges the two atomically
// where the file system supports it.
Status Place(const std::string& partial, const std::string& path, const std::string& aside) {
  if (::rename(partial.c_str(), path.c_str()) == 0) return Done{};
  if (errno != ENOTEMPTY && errno != EEXIST)
    return SystemError(Diag::kFileWrite, path, "rename the folder");
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0)
    return RemoveTree(partial);
  HEDDLE_RETURN_IF_ERROR(RemoveTree(aside));
  if (::rename(path.c_str(), aside.c_str()) != 0 || ::rename(partial.c_str(), path.c_str()) != 0)
    return SystemError(Diag::kFileWrite, path, "rename the folder");
  return RemoveTree(aside);
}

Status Complete(const SaveJob& job, const std::atomic<bool>& give_up,
                std::vector<RankRecord> records) {
  std::string partial = PartialOf(job);
  HEDDLE_RETURN_IF_ERROR(WaitForMarks(job, give_up, records));
  HEDDLE_TRY(Manifest manifest, MakeManifest(job.step, job.state, records));
  for (int64_t rank = 0; rank < job.world; ++rank)
    std::remove((partial + "/" + RankMarkName(rank)).c_str());
  std::string text = FormatManifest(manifest);
  std::string_view parts[] = {text};
  HEDDLE_RETURN_IF_ERROR(WriteDurably(partial + "/" + kManifestName, parts));
  HEDDLE_RETURN_IF_ERROR(SyncFolder(partial));
  HEDDLE_RETURN_IF_ERROR(Place(partial, job.folder + "/" + StepFolderName(job.step),
                               job.folder + "/" + PartialFolderName(job.step, job.run + "-old")));
  return SyncFolder(job.folder);
}

// Removes checkpoints older than the `keep` newest complete ones, which include this one.
Status Prune(const SaveJob& job) {
  if (job.keep == 0) return Done{};
  HEDDLE_TRY(std::vector<ListedCheckpoint> list, ListCheckpoints(job.folder));
  std::erase_if(list, [&](const ListedCheckpoint& c) { return c.step > job.step; });
  int64_t kept = 0;
  for (auto listed = list.rbegin(); listed != list.rend(); ++listed) {
    if (kept == 0 && !listed->checkpoint) return Failure{listed->problem};
    if (kept < job.keep) {
      kept += listed->checkpoint ? 1 : 0;
    } else {
      HEDDLE_RETURN_IF_ERROR(RemoveStep(job.folder, listed->step, job.run));
    }
  }
  return Done{};
}

}  // namespace

Status RemoveStep(const std::string& folder, int64_t step, const std::string& run) {
  std::string path = folder + "/" + StepFolderName(step);
  std::string aside = folder + "/" + PartialFolderName(step, run);
  HEDDLE_RETURN_IF_ERROR(RemoveTree(aside));
  if (::rename(path.c_str(), aside.c_str()) != 0)
    return SystemError(Diag::kFileWrite, path, "remove");
  return RemoveTree(aside);
}

Status RunSave(const SaveJob& job, const std::atomic<bool>& give_up) {
  bool completes = job.ranks[0].rank == 0;
  Result<std::vector<RankRecord>> records = WriteRanks(job);
  if (!completes) {
    if (!records.ok()) {
      for (const RankContent& content : job.ranks)
        std::remove((PartialOf(job) + "/" + RankFileName(content.rank)).c_str());
    }
    Status marked = LeaveMarks(job, records);
    if (!records.ok()) return std::move(records).failure();
    return marked;
  }
  Status saved = records.ok() ? Complete(job, give_up, *std::move(records))
                              : Status(std::move(records).failure());
  if (!saved.ok()) {
    // A folder without its final name only takes space.
    (void)RemoveTree(PartialOf(job)).ok();
    return saved;
  }
  return Prune(job);
}

}  // namespace heddle::run
