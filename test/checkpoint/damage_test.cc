// Damage of every kind is detected; the previous checkpoint is used, with a note.
#include <gtest/gtest.h>
#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/test/extent.h"
#include "heddle/run/checkpoint/disk.h"
#include "heddle/run/checkpoint/manifest.h"
#include "test/checkpoint/state.h"

namespace heddle {
namespace {

class DamageTest : public testing::Test {
 protected:
  void SetUp() override {
    auto writer = *run::CheckpointWriter::Open(
        {.folder = Folder(), .world = 2, .ranks = {0, 1}, .keep = 0, .run = ""});
    for (int64_t step : {1, 2}) {
      State state = StateOf(step);
      ASSERT_TRUE(writer->Save(SnapshotOf(state, step, {0, 1})).ok());
      ASSERT_TRUE(writer->Finish().ok());
    }
  }
  static State StateOf(int64_t step) {
    State state{Mesh({{"dp", 2}}), {}};
    state.tensors = {MakeTensor(state.mesh, "w", {5, 3}, {"dp", ""}),
                     MakeTensor(state.mesh, "b", {4}, {""})};
    Fill(state, static_cast<uint64_t>(step));
    return state;
  }
  std::string Folder() const { return folder_.path() + "/out"; }
  std::string Path(const std::string& file, int64_t step = 2) const {
    return Folder() + "/" + run::StepFolderName(step) + "/" + file;
  }
  // Checks that step 1 is used, with a note that states the reason.
  void ExpectFallback(const std::string& why) const {
    auto opened = run::OpenCheckpoint(Folder());
    ASSERT_TRUE(opened.ok()) << Format(opened.diagnostics());
    const run::Checkpoint& checkpoint = **opened;
    EXPECT_EQ(checkpoint.step(), 1);
    EXPECT_EQ(Differences(StateOf(1), checkpoint), "");
    ASSERT_EQ(checkpoint.notes().size(), 1u);
    EXPECT_TRUE(checkpoint.notes()[0].starts_with("skipped step 2: "));
    EXPECT_NE(checkpoint.notes()[0].find(why), std::string::npos) << checkpoint.notes()[0];
    auto exact = run::OpenCheckpoint(Folder(), {.step = 2, .newest = {}});
    ASSERT_FALSE(exact.ok());
    EXPECT_EQ(exact.diagnostics()[0].kind, Diag::kCheckpointDamaged);
  }
  void Flip(const std::string& path, size_t bit) const {
    std::string content = *ReadFile(path);
    content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_TRUE(WriteFile(path, content).ok());
  }

  TempDir folder_;
};

TEST_F(DamageTest, ATruncatedFile) {
  ASSERT_EQ(::truncate(Path("rank-00001.safetensors").c_str(), 40), 0);
  ExpectFallback("rank-00001.safetensors: has 40 bytes, but the manifest specifies");
}

TEST_F(DamageTest, AMissingFile) {
  ASSERT_EQ(::unlink(Path("rank-00000.safetensors").c_str()), 0);
  ExpectFallback("rank-00000.safetensors: cannot find: No such file or directory");
}

TEST_F(DamageTest, AMissingManifest) {
  ASSERT_EQ(::unlink(Path("manifest.json").c_str()), 0);
  ExpectFallback("manifest.json: is missing");
}

TEST_F(DamageTest, FilesThatChangedPlaces) {
  std::string zero = *ReadFile(Path("rank-00000.safetensors", 1));
  ASSERT_TRUE(WriteFile(Path("rank-00000.safetensors"), zero).ok());
  ExpectFallback("rank-00000.safetensors: has hash");
}

TEST_F(DamageTest, AManifestOfAnotherStep) {
  ASSERT_TRUE(WriteFile(Path("manifest.json"), *ReadFile(Path("manifest.json", 1))).ok());
  ExpectFallback("manifest.json: is the manifest of step 1");
}

TEST_F(DamageTest, EveryBitOfAFile) {
  std::string path = Path("rank-00001.safetensors");
  size_t bits = 8 * ReadFile(path)->size();
  for (size_t bit = 0; bit < bits; ++bit) {
    Flip(path, bit);
    ExpectFallback("rank-00001.safetensors: has hash");
    Flip(path, bit);
  }
  EXPECT_EQ((*run::OpenCheckpoint(Folder()))->step(), 2);
}

// A flip may give a newer version, which has another error; every other flip must be detected.
// Tests a third of the bits, and all of them in `make soak`.
TEST_F(DamageTest, BitsOfTheManifest) {
  std::string path = Path("manifest.json");
  std::string content = *ReadFile(path);
  int versions = 0;
  const uint32_t stride = Extent(3, 1);
  for (size_t bit = 0; bit < 8 * content.size(); bit += stride) {
    Flip(path, bit);
    auto opened = run::OpenCheckpoint(Folder());
    if (opened.ok() && (*opened)->step() == 2) {
      // Between values, one kind of white space may become another.
      EXPECT_TRUE(std::isspace(static_cast<unsigned char>(content[bit / 8]))) << bit;
    } else if (!opened.ok()) {
      EXPECT_EQ(opened.diagnostics()[0].kind, Diag::kVersion);
      ++versions;
    }
    ASSERT_TRUE(WriteFile(path, content).ok());
  }
  EXPECT_GT(versions, 0);
  EXPECT_LT(versions, 9);
}

TEST_F(DamageTest, ANewerVersionIsNotPassedOver) {
  std::string content = *ReadFile(Path("manifest.json"));
  content.replace(content.find("\"version\":1"), 11, "\"version\":2");
  ASSERT_TRUE(WriteFile(Path("manifest.json"), content).ok());
  auto opened = run::OpenCheckpoint(Folder());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.diagnostics()[0].kind, Diag::kVersion);
  EXPECT_EQ(opened.diagnostics()[0].message,
            "has version 2, but this heddle reads versions up to 1; use a newer heddle");
  EXPECT_EQ(opened.diagnostics()[0].file, Path("manifest.json"));
}

TEST_F(DamageTest, NoneIsWhole) {
  for (int64_t step : {1, 2}) ASSERT_EQ(::unlink(Path("manifest.json", step).c_str()), 0);
  auto opened = run::OpenCheckpoint(Folder());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(Format(opened.diagnostics()),
            Path("manifest.json") + ": is missing [checkpoint-damaged]\n" + Folder() +
                ": has 2 checkpoints, none of them complete [checkpoint-damaged]\n");
}

TEST_F(DamageTest, ProcessesShareTheHashing) {
  Flip(Path("rank-00001.safetensors"), 700);
  EXPECT_EQ(
      (*run::OpenCheckpoint(Folder(), {.step = {}, .newest = {}, .part = 0, .parts = 2}))->step(),
      2);
  EXPECT_EQ(
      (*run::OpenCheckpoint(Folder(), {.step = {}, .newest = {}, .part = 1, .parts = 2}))->step(),
      1);
  EXPECT_EQ(
      (*run::OpenCheckpoint(Folder(), {.step = {}, .newest = 1, .part = 0, .parts = 2}))->step(),
      1);
}

TEST_F(DamageTest, ACheckpointOfAnotherModel) {
  run::Checkpoint checkpoint = **run::OpenCheckpoint(Folder());
  std::vector<run::TensorInfo> other = {{"w", DType::kBF16, {5, 3}}, {"c", DType::kF32, {4}}};
  Status refused = checkpoint.CheckTensors(other);
  std::string path = checkpoint.path();
  EXPECT_EQ(Format(refused.diagnostics()),
            path + ": `w` is f32 [5,3], but bf16 [5,3] in the run [checkpoint]\n" + path +
                ": has no tensor `c`, which the run needs [checkpoint]\n" + path +
                ": has a tensor `b`, which the run does not have [checkpoint]\n");
}

TEST_F(DamageTest, SlicesThatAreNone) {
  run::Checkpoint checkpoint = **run::OpenCheckpoint(Folder());
  float to[15];
  auto said = [&](const std::string& name, const run::Slice& slice) {
    Status read = checkpoint.Read(name, slice, to);
    return read.ok() ? "" : read.diagnostics()[0].message;
  };
  EXPECT_EQ(said("w", {{0, 0}, {5, 3}}), "");
  EXPECT_EQ(said("w", {{5, 0}, {0, 3}}), "");
  EXPECT_EQ(said("v", {{0}, {1}}), "has no tensor `v`");
  EXPECT_EQ(said("w", {{3, 0}, {3, 3}}),
            "`w` has shape [5,3]; a slice of [3,3] at [3,0] is outside it");
  EXPECT_EQ(said("w", {{-1, 0}, {3, 3}}),
            "`w` has shape [5,3]; a slice of [3,3] at [-1,0] is outside it");
  EXPECT_EQ(said("w", {{0}, {3}}), "`w` has shape [5,3]; a slice of [3] at [0] is outside it");
  EXPECT_EQ(said("w", {{1, 0}, {INT64_MAX, 3}}),
            "`w` has shape [5,3]; a slice of [9223372036854775807,3] at [1,0] is outside it");
}

}  // namespace
}  // namespace heddle
