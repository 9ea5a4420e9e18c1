// Tests of `heddle checkpoint`.
#include <gtest/gtest.h>

#include <sstream>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "heddle/cli/cli.h"
#include "heddle/core/base/file.h"
#include "test/checkpoint/state.h"

namespace heddle {
namespace {

class CheckpointCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    State state{Mesh({{"dp", 2}}), {}};
    state.tensors = {MakeTensor(state.mesh, "layers.0.w", {5, 3}, {"dp", ""}),
                     MakeTensor(state.mesh, "norm", {4}, {""}, DType::kBF16)};
    Fill(state, 1);
    auto writer = *run::CheckpointWriter::Open(
        {.folder = folder_.path(), .world = 2, .ranks = {0, 1}, .run = ""});
    for (int64_t step : {10, 20}) {
      ASSERT_TRUE(writer->Save(SnapshotOf(state, step, {0, 1})).ok());
      ASSERT_TRUE(writer->Finish().ok());
    }
  }
  ExitCode Run(std::vector<std::string> args) {
    out_.str("");
    err_.str("");
    args.insert(args.begin(), "checkpoint");
    Streams streams{nullptr, out_, err_};
    return RunCommandLine(args, streams);
  }
  // Replaces the temporary folder by a constant name.
  std::string Plain(std::string text) const {
    for (size_t at; (at = text.find(folder_.path())) != std::string::npos;)
      text.replace(at, folder_.path().size(), "F");
    return text;
  }
  std::string File(const char* name) const { return folder_.path() + "/step-00000020/" + name; }

  TempDir folder_;
  std::ostringstream out_, err_;
};

TEST_F(CheckpointCommandTest, List) {
  EXPECT_EQ(Run({"ls", folder_.path()}), ExitCode::kDone);
  EXPECT_EQ(out_.str(),
            "step  ranks  tensors   size  state\n"
            "  10      2        2  284 B  whole\n"
            "  20      2        2  284 B  whole\n");
  EXPECT_EQ(Run({"ls", folder_.path(), "--step=20", "--json"}), ExitCode::kDone);
  EXPECT_EQ(nlohmann::json::parse(Plain(out_.str())),
            nlohmann::json::parse(R"([{"step": 20, "path": "F/step-00000020", "whole": true,
                                       "ranks": 2, "tensors": 2, "bytes": 284}])"));
}

TEST_F(CheckpointCommandTest, Show) {
  EXPECT_EQ(Run({"show", folder_.path()}), ExitCode::kDone);
  EXPECT_EQ(Plain(out_.str()),
            "F/step-00000020: step 20, 2 ranks, 284 B in 2 tensors\n"
            "state {\"step\":20}\n"
            "\n"
            "tensor      type  shape  pieces\n"
            "layers.0.w  f32   [5,3]       2\n"
            "norm        bf16  [4]         1\n");
  EXPECT_EQ(Run({"show", folder_.path(), "--json", "--step=10"}), ExitCode::kDone);
  auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["state"]["step"], 10);
  EXPECT_EQ(json["tensors"][0]["pieces"], 2);
}

TEST_F(CheckpointCommandTest, Damage) {
  EXPECT_EQ(Run({"verify", folder_.path()}), ExitCode::kDone);
  std::string content = *ReadFile(File("rank-00001.safetensors"));
  content.back() = static_cast<char>(content.back() ^ 1);
  ASSERT_TRUE(WriteFile(File("rank-00001.safetensors"), content).ok());
  // `ls` does not read the data, so it does not see a flipped bit.
  EXPECT_EQ(Run({"ls", folder_.path()}), ExitCode::kDone);
  EXPECT_EQ(Run({"verify", folder_.path()}), ExitCode::kDiffers);
  EXPECT_EQ(out_.str(),
            "step  ranks  tensors   size  state\n"
            "  10      2        2  284 B  whole\n"
            "  20      2        2  284 B  damaged\n");
  EXPECT_TRUE(Plain(err_.str()).starts_with("F/step-00000020/rank-00001.safetensors: has hash "))
      << err_.str();
  EXPECT_EQ(Run({"verify", folder_.path(), "--step=10"}), ExitCode::kDone);
  EXPECT_EQ(Run({"show", folder_.path()}), ExitCode::kDone);
  EXPECT_TRUE(err_.str().starts_with("skipped step 20: ")) << err_.str();
  EXPECT_EQ(Run({"show", folder_.path(), "--step=20"}), ExitCode::kUserMistake);
  ASSERT_EQ(::unlink(File("manifest.json").c_str()), 0);
  EXPECT_EQ(Run({"ls", folder_.path()}), ExitCode::kDiffers);
  EXPECT_EQ(Plain(err_.str()), "F/step-00000020/manifest.json: is missing [checkpoint-damaged]\n");
}

TEST_F(CheckpointCommandTest, Refusals) {
  EXPECT_EQ(Run({"ls", folder_.path() + "/none"}), ExitCode::kUserMistake);
  EXPECT_EQ(Plain(err_.str()), "F/none: has no checkpoint [checkpoint]\n");
  EXPECT_EQ(Run({"verify", folder_.path(), "--step=7"}), ExitCode::kUserMistake);
  EXPECT_EQ(Plain(err_.str()), "F: has no checkpoint of step 7 [checkpoint]\n");
  EXPECT_EQ(Run({"ls", folder_.path() + "/lock"}), ExitCode::kUserMistake);
  EXPECT_EQ(Plain(err_.str()), "F/lock: cannot open: Not a directory [file-read]\n");
}

}  // namespace
}  // namespace heddle
