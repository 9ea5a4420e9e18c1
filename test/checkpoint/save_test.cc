// Tests of saving: which checkpoints are kept, waits between processes, locks, and failures.
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/run/checkpoint/disk.h"
#include "test/checkpoint/state.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;

State SmallState(uint64_t seed = 1) {
  State state{Mesh({{"dp", 4}}), {}};
  state.tensors = {MakeTensor(state.mesh, "w", {10, 3}, {"dp", ""}),
                   MakeTensor(state.mesh, "norm", {7}, {""}, DType::kBF16),
                   MakeTensor(state.mesh, "count", {}, {}, DType::kI64),
                   MakeTensor(state.mesh, "none", {0, 5}, {"dp", ""}, DType::kBool),
                   MakeTensor(state.mesh, "few", {2, 3}, {"dp", ""}, DType::kU8)};
  Fill(state, seed);
  return state;
}

class SaveTest : public testing::Test {
 protected:
  std::string Folder() const { return folder_.path() + "/out"; }
  std::unique_ptr<run::CheckpointWriter> Writer(int64_t keep = 2, int64_t begin_step = 0) const {
    return *run::CheckpointWriter::Open({.folder = Folder(),
                                         .world = 4,
                                         .ranks = {0, 1, 2, 3},
                                         .keep = keep,
                                         .begin_step = begin_step,
                                         .run = ""});
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    auto list = *run::ListCheckpoints(Folder());
    for (const run::ListedCheckpoint& listed : list) steps.push_back(listed.step);
    return steps;
  }
  static std::string Said(const Status& status) { return Format(status.diagnostics()); }
  // Opens a writer of one rank among two processes.
  Result<std::unique_ptr<run::CheckpointWriter>> OneOfTwo(int64_t rank,
                                                          milliseconds timeout) const {
    return run::CheckpointWriter::Open(
        {.folder = Folder(), .world = 2, .ranks = {rank}, .run = "r1", .timeout = timeout});
  }

  TempDir folder_;
};

TEST_F(SaveTest, WhatIsSavedIsRead) {
  State state = SmallState();
  auto writer = Writer();
  ASSERT_TRUE(writer->Save(SnapshotOf(state, 10, AllRanks(state.mesh))).ok());
  // The snapshot is a copy, so later changes are not in it.
  State saved = state;
  Fill(state, 2);
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(writer->last()->step, 10);
  EXPECT_EQ(writer->last()->bytes.value, 10 * 3 * 4 + 7 * 2 + 8 + 2 * 3);
  run::Checkpoint checkpoint = **run::OpenCheckpoint(Folder());
  EXPECT_EQ(checkpoint.step(), 10);
  EXPECT_EQ(checkpoint.world(), 4);
  EXPECT_EQ(checkpoint.state(), "{\"step\":10}");
  EXPECT_TRUE(checkpoint.notes().empty());
  EXPECT_EQ(Differences(saved, checkpoint), "");
  EXPECT_NE(Differences(state, checkpoint), "");
  EXPECT_EQ(checkpoint.PieceCount("w"), 4);
  EXPECT_EQ(checkpoint.PieceCount("norm"), 1);
  EXPECT_EQ(checkpoint.PieceCount("none"), 0);
  EXPECT_EQ(checkpoint.PieceCount("few"), 2);
}

TEST_F(SaveTest, FilesDependOnTheStateOnly) {
  State state = SmallState();
  std::vector<std::string> manifests;
  for (const char* name : {"/a", "/b"}) {
    auto writer = *run::CheckpointWriter::Open(
        {.folder = folder_.path() + name, .world = 4, .ranks = {0, 1, 2, 3}, .run = ""});
    ASSERT_TRUE(writer->Save(SnapshotOf(state, 1, AllRanks(state.mesh))).ok());
    ASSERT_TRUE(writer->Finish().ok());
    manifests.push_back(*ReadFile(folder_.path() + name + "/step-00000001/manifest.json"));
  }
  EXPECT_EQ(manifests[0], manifests[1]);
}

TEST_F(SaveTest, NothingThereIsNoMistake) {
  EXPECT_FALSE(run::OpenCheckpoint(Folder())->has_value());
  EXPECT_TRUE(run::ListCheckpoints(Folder())->empty());
  auto missing = run::OpenCheckpoint(Folder(), {.step = 3, .newest = {}});
  EXPECT_EQ(missing.diagnostics()[0].message, "has no checkpoint of step 3; it has none");
  EXPECT_EQ(missing.diagnostics()[0].kind, Diag::kCheckpoint);
}

TEST_F(SaveTest, TheNewestAreKept) {
  auto writer = Writer(/*keep=*/3);
  for (int64_t step = 1; step <= 6; ++step) {
    State state = SmallState(static_cast<uint64_t>(step));
    ASSERT_TRUE(writer->Save(SnapshotOf(state, step, AllRanks(state.mesh))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{4, 5, 6}));
  EXPECT_EQ(run::NamesIn(Folder())->size(), 4u);
  for (int64_t step : Steps()) {
    run::Checkpoint checkpoint = **run::OpenCheckpoint(Folder(), {.step = step, .newest = {}});
    EXPECT_EQ(Differences(SmallState(static_cast<uint64_t>(step)), checkpoint), "");
  }
}

TEST_F(SaveTest, ADamagedOneIsNotCountedAmongThoseKept) {
  State state = SmallState();
  auto writer = Writer(/*keep=*/2);
  for (int64_t step : {1, 2}) {
    ASSERT_TRUE(writer->Save(SnapshotOf(state, step, AllRanks(state.mesh))).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  ASSERT_EQ(::truncate((Folder() + "/step-00000002/rank-00000.safetensors").c_str(), 5), 0);
  ASSERT_TRUE(writer->Save(SnapshotOf(state, 3, AllRanks(state.mesh))).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(SaveTest, AStepIsReplaced) {
  State first = SmallState(1), second = SmallState(2);
  auto writer = Writer();
  for (const State* state : {&first, &second}) {
    ASSERT_TRUE(writer->Save(SnapshotOf(*state, 5, AllRanks(state->mesh))).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  EXPECT_EQ(Differences(second, **run::OpenCheckpoint(Folder())), "");
  EXPECT_EQ(Steps(), std::vector<int64_t>{5});
}

TEST_F(SaveTest, LaterCheckpointsAreNotOverwritten) {
  State state = SmallState();
  auto save = [&](int64_t step) {
    auto writer = Writer();
    return writer->Save(SnapshotOf(state, step, AllRanks(state.mesh))).ok() &&
           writer->Finish().ok();
  };
  ASSERT_TRUE(save(8));
  auto opened = run::CheckpointWriter::Open({.folder = Folder(), .begin_step = 7, .run = ""});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.diagnostics()[0].message,
            "has a checkpoint of step 8, but this run begins at step 7; move it away, or give "
            "another folder");
  EXPECT_TRUE(run::CheckpointWriter::Open({.folder = Folder(), .begin_step = 8, .run = ""}).ok());
  // A damaged later checkpoint does not prevent a run.
  ASSERT_TRUE(WriteFile(Folder() + "/step-00000008/manifest.json", "{}").ok());
  EXPECT_TRUE(run::CheckpointWriter::Open({.folder = Folder(), .begin_step = 7, .run = ""}).ok());
}

TEST_F(SaveTest, TextsStandBesideTheCheckpoints) {
  run::CheckpointWriterOptions options{.folder = Folder(), .run = ""};
  options.texts = {{"job.toml", "steps = 3\n"}};
  ASSERT_TRUE(run::CheckpointWriter::Open(options).ok());
  EXPECT_EQ(*ReadFile(Folder() + "/job.toml"), "steps = 3\n");
}

TEST_F(SaveTest, OneJobAtATimeHasTheFolder) {
  auto writer = Writer();
  auto second = run::CheckpointWriter::Open({.folder = Folder(), .run = ""});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.diagnostics()[0].kind, Diag::kCheckpointLock);
  char host[128] = {};
  ::gethostname(host, sizeof host - 1);
  EXPECT_EQ(
      second.diagnostics()[0].message,
      fmt::format("another job writes its checkpoints here: process {} on {}; wait for it, or "
                  "give another folder",
                  ::getpid(), host));
  writer.reset();
  EXPECT_TRUE(run::CheckpointWriter::Open({.folder = Folder(), .run = ""}).ok());
}

TEST_F(SaveTest, WhatInterruptedSavesLeftIsRemoved) {
  ASSERT_TRUE(MakeDirectories(Folder() + "/step-00000004.partial-abc").ok());
  ASSERT_TRUE(WriteFile(Folder() + "/step-00000004.partial-abc/manifest.json", "{").ok());
  EXPECT_FALSE(run::OpenCheckpoint(Folder())->has_value());
  ASSERT_TRUE(MakeDirectories(Folder() + "/step-four.partial-abc").ok());
  auto writer = Writer();
  EXPECT_EQ(*run::NamesIn(Folder()), (std::vector<std::string>{"lock", "step-four.partial-abc"}));
}

TEST_F(SaveTest, ProcessesShareTheFolder) {
  State state = SmallState();
  state.mesh = Mesh({{"dp", 2}});
  auto zero = *OneOfTwo(0, milliseconds(20000));
  auto one = *OneOfTwo(1, milliseconds(20000));
  for (int64_t step : {1, 2, 3}) {
    Fill(state, static_cast<uint64_t>(step));
    ASSERT_TRUE(zero->Save(SnapshotOf(state, step, {0})).ok());
    ASSERT_TRUE(one->Save(SnapshotOf(state, step, {1})).ok());
  }
  ASSERT_TRUE(one->Finish().ok());
  ASSERT_TRUE(zero->Finish().ok());
  EXPECT_EQ(Differences(state, **run::OpenCheckpoint(Folder())), "");
  EXPECT_EQ(Steps(), (std::vector<int64_t>{2, 3}));
  // The marks are removed: several processes and a single one write the same files.
  EXPECT_EQ(*run::NamesIn(Folder() + "/step-00000003"),
            (std::vector<std::string>{"manifest.json", "rank-00000.safetensors",
                                      "rank-00001.safetensors"}));
}

TEST_F(SaveTest, WhoIsMissingIsNamed) {
  State state = SmallState();
  auto writer = *run::CheckpointWriter::Open(
      {.folder = Folder(), .world = 4, .ranks = {0, 2}, .run = "r", .timeout = milliseconds(50)});
  ASSERT_TRUE(writer->Save(SnapshotOf(state, 6, {0, 2})).ok());
  Status failed = writer->Finish();
  EXPECT_EQ(Said(failed),
            "step 6 was not saved: after 50.00 ms there is no file from 2 of 4 ranks: ranks 1, 3 "
            "[peers]\n");
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_TRUE(Steps().empty());
  EXPECT_EQ(*run::NamesIn(Folder()), std::vector<std::string>{"lock"});
}

TEST_F(SaveTest, TheEndOfAWriterDoesNotWaitForOthers) {
  State state = SmallState();
  state.mesh = Mesh({{"dp", 2}});
  {
    // A writer that waited for the other rank would exceed the time limit of ctest.
    auto writer = *OneOfTwo(0, std::chrono::hours(24));
    ASSERT_TRUE(writer->Save(SnapshotOf(state, 6, {0})).ok());
  }
  EXPECT_TRUE(Steps().empty());
}

TEST_F(SaveTest, PiecesThatDoNotMakeATensor) {
  State state = SmallState();
  auto writer = Writer();
  run::Snapshot snapshot = SnapshotOf(state, 1, {0, 1, 3});
  ASSERT_TRUE(writer->Save(snapshot).ok());
  EXPECT_EQ(
      Said(writer->Finish()),
      "`w` of [10,3] has pieces that end at 6 and pieces that begin at 9 of dimension 0; they must "
      "meet [checkpoint]\n");
  snapshot = SnapshotOf(state, 1, {0, 1, 2, 3});
  snapshot.pieces.push_back(snapshot.pieces[0]);
  snapshot.pieces.back().rank = 3;
  // Rank 3 already has a piece of `w`, and names in a file are unique.
  EXPECT_EQ(Said(writer->Save(snapshot)), "two tensors have the name `w` [file-write]\n");
  snapshot.pieces.pop_back();
  snapshot.pieces[0].slice.offset[0] = 8;
  EXPECT_EQ(Said(writer->Save(snapshot)),
            "`w` has shape [10,3]; a slice of [3,3] at [8,0] is outside it [checkpoint]\n");
  snapshot.state = "[]";
  EXPECT_EQ(Said(writer->Save(snapshot)),
            "the state of a run:1:1: is a list, expected an object [file-read]\n[]\n^\n");
  EXPECT_TRUE(Steps().empty());
}

// Limits the size of files.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(SaveTest, AfterAFailedSaveTheOldIsThereAndTheNextGoesOn) {
  State old = SmallState(1), state = SmallState(2);
  auto writer = Writer(/*keep=*/1);
  ASSERT_TRUE(writer->Save(SnapshotOf(old, 1, AllRanks(old.mesh))).ok());
  ASSERT_TRUE(writer->Finish().ok());
  {
    SmallFiles small(100);
    ASSERT_TRUE(writer->Save(SnapshotOf(state, 2, AllRanks(state.mesh))).ok());
    // The next call reports the failure, and its own save fails, too.
    Status failed = writer->Save(SnapshotOf(state, 3, AllRanks(state.mesh)));
    EXPECT_NE(
        Said(failed).find("rank-00000.safetensors: cannot write: File too large [file-write]"),
        std::string::npos)
        << Said(failed);
    EXPECT_FALSE(writer->Finish().ok());
    EXPECT_EQ(writer->last()->step, 1);
  }
  EXPECT_EQ(Steps(), std::vector<int64_t>{1});
  EXPECT_EQ(Differences(old, **run::OpenCheckpoint(Folder())), "");
  EXPECT_EQ(run::NamesIn(Folder())->size(), 2u);
  ASSERT_TRUE(writer->Save(SnapshotOf(state, 4, AllRanks(state.mesh))).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Steps(), std::vector<int64_t>{4});
}

TEST_F(SaveTest, ARankThatCannotWriteIsNamed) {
  State state = SmallState();
  state.mesh = Mesh({{"dp", 2}});
  auto zero = *OneOfTwo(0, milliseconds(20000));
  auto one = *OneOfTwo(1, milliseconds(20000));
  // Rank 1 cannot create its file: a folder has the name.
  ASSERT_TRUE(MakeDirectories(Folder() + "/step-00000001.partial-r1/rank-00001.safetensors").ok());
  ASSERT_TRUE(one->Save(SnapshotOf(state, 1, {1})).ok());
  EXPECT_FALSE(one->Finish().ok());
  ASSERT_TRUE(zero->Save(SnapshotOf(state, 1, {0})).ok());
  Status failed = zero->Finish();
  EXPECT_EQ(failed.diagnostics()[0].kind, Diag::kPeers);
  EXPECT_TRUE(failed.diagnostics()[0].message.starts_with(
      "rank 1 could not write its part of the checkpoint: "))
      << Said(failed);
  EXPECT_TRUE(Steps().empty());
}

// A small file system mounted at an existing folder.
class SmallDisk {
 public:
  explicit SmallDisk(std::string folder)
      : folder_(std::move(folder)),
        there_(::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=256k") == 0) {}
  ~SmallDisk() {
    if (there_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  bool there() const { return there_; }

 private:
  std::string folder_;
  bool there_;
};

TEST_F(SaveTest, AFullDisk) {
  ASSERT_TRUE(MakeDirectories(Folder()).ok());
  SmallDisk disk(Folder());
  if (!disk.there()) GTEST_SKIP() << "needs the right to mount";
  State small = SmallState();
  State big{Mesh({{"dp", 4}}), {}};
  big.tensors = {MakeTensor(big.mesh, "w", {100000}, {"dp"})};
  Fill(big, 3);
  auto writer = Writer();
  ASSERT_TRUE(writer->Save(SnapshotOf(small, 1, AllRanks(small.mesh))).ok());
  ASSERT_TRUE(writer->Finish().ok());
  ASSERT_TRUE(writer->Save(SnapshotOf(big, 2, AllRanks(big.mesh))).ok());
  Status failed = writer->Finish();
  EXPECT_NE(Said(failed).find("cannot write: No space left on device"), std::string::npos)
      << Said(failed);
  EXPECT_EQ(Differences(small, **run::OpenCheckpoint(Folder())), "");
  ASSERT_TRUE(writer->Save(SnapshotOf(small, 3, AllRanks(small.mesh))).ok());
  EXPECT_TRUE(writer->Finish().ok());
}

// Root may write anywhere, so a child process tries as user nobody.
TEST_F(SaveTest, AFolderWithoutPermission) {
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    if (::geteuid() != 65534) ::chmod(folder_.path().c_str(), 0555);
    auto opened = run::CheckpointWriter::Open({.folder = Folder(), .run = ""});
    bool right = !opened.ok() && opened.diagnostics()[0].kind == Diag::kFileWrite &&
                 opened.diagnostics()[0].message.ends_with("Permission denied");
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::chmod(folder_.path().c_str(), 0755);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) GTEST_SKIP() << "cannot become nobody";
  EXPECT_EQ(status, 0);
}

TEST_F(SaveTest, AFileInThePlaceOfTheFolder) {
  ASSERT_TRUE(WriteFile(Folder(), "").ok());
  EXPECT_EQ(run::CheckpointWriter::Open({.folder = Folder(), .run = ""}).diagnostics()[0].kind,
            Diag::kFileWrite);
  EXPECT_EQ(run::OpenCheckpoint(Folder()).diagnostics()[0].message, "cannot open: Not a directory");
  EXPECT_EQ(
      run::CheckpointWriter::Open({.folder = "x", .keep = -1, .run = ""}).diagnostics()[0].kind,
      Diag::kUsage);
}

}  // namespace
}  // namespace heddle
