#include "heddle/run/train/run_state.h"

#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/run/checkpoint/writer.h"

namespace heddle::run {
namespace {

class RunStateTest : public testing::Test {
 protected:
  static RunState State(const char* family = "deepseek_v3", const char* flavor = "16B") {
    return {.config = *FindModel(family, flavor),
            .seed = 42,
            .data = "tokens=100+0 hash=1 seq_len=16 global_batch=8 seed=42",
            .settings = {{"optimizer.lr", "0.0008"}, {"precision", "f32"}}};
  }

  Checkpoint Saved(const std::string& state) {
    CheckpointWriterOptions options;
    options.folder = folder_.path();
    options.begin_step = step_;
    auto writer = *CheckpointWriter::Open(options);
    auto copy = [](void* to) { std::memset(to, 0, 4); };
    EXPECT_TRUE(
        writer->Save({++step_, state, {{{"w", DType::kF32, {1}}, {{0}, {1}}, 0, copy}}}).ok());
    EXPECT_TRUE(writer->Finish().ok());
    return **OpenCheckpoint(folder_.path());
  }

  // Returns the errors or remarks of resuming a run, without the path.
  static std::string Said(const Checkpoint& checkpoint, const RunState& now,
                          const ResumeBatch& batch = {}) {
    Result<std::vector<std::string>> same = CheckSameRun(checkpoint, now, batch);
    std::string text;
    if (same.ok()) {
      for (const std::string& remark : *same) text += remark + "\n";
    } else {
      for (const Diagnostic& problem : same.diagnostics())
        text += "refused: " + problem.message + "\n";
    }
    for (size_t at; (at = text.find(checkpoint.path())) != std::string::npos;)
      text.replace(at, checkpoint.path().size(), "STEP");
    return text;
  }

  TempDir folder_;
  int64_t step_ = 0;
};

// Changes the value of a constant.
void Change(const ConfigField& field, ModelConfig& config) {
  if (field.size != nullptr) field.size(config) += 2;
  if (field.number != nullptr) field.number(config) += 0.25;
  if (field.choose != nullptr)
    field.choose(config, (field.chosen(config) + 1) % field.choices.size());
  if (field.text != nullptr) field.text(config) = "wq";
}

TEST_F(RunStateTest, EveryConstantOfTheModelIsCompared) {
  Checkpoint checkpoint = Saved(FormatRunState(State()));
  EXPECT_EQ(Said(checkpoint, State()), "");
  for (const ConfigField& field : ConfigFields()) {
    RunState other = State();
    Change(field, other.config);
    std::string said = Said(checkpoint, other);
    EXPECT_TRUE(said.starts_with(fmt::format("refused: STEP was trained with {}=", field.flag())))
        << field.name << ": " << said;
  }
  RunState other = State();
  other.config.norm_eps = 1e-5;
  other.config.rope.scaling = RopeScaling::kNone;
  EXPECT_EQ(
      Said(checkpoint, other),
      "refused: STEP was trained with --model.norm_eps=1e-06, this job has 1e-05; resume with "
      "--model.norm_eps=1e-06, or begin in another --checkpoint.folder\n"
      "refused: STEP was trained with --model.rope_scaling.kind=yarn, this job has none; "
      "resume with --model.rope_scaling.kind=yarn, or begin in another --checkpoint.folder\n");
}

TEST_F(RunStateTest, TheModelComesBack) {
  for (const ModelConfig& config : AllModels()) {
    RunState state = State();
    state.config = config;
    for (const ConfigField& field : ConfigFields()) Change(field, state.config);
    Result<SavedRunState> saved = ReadRunState(Saved(FormatRunState(state)));
    ASSERT_TRUE(saved.ok()) << Format(saved.diagnostics());
    EXPECT_EQ(saved->config->family, config.family);
    EXPECT_EQ(saved->config->flavor, config.flavor);
    EXPECT_TRUE(DifferentConstants(*saved->config, state.config).empty()) << config.flavor;
    EXPECT_EQ(DifferentConstants(*saved->config, config).size(), ConfigFields().size());
  }
}

TEST_F(RunStateTest, OlderCheckpointsResumeWithARemark) {
  auto json = nlohmann::ordered_json::parse(FormatRunState(State()));
  json.erase("constants");
  json.erase("settings");
  Checkpoint checkpoint = Saved(json.dump());
  EXPECT_EQ(Said(checkpoint, State()),
            "STEP was written by an older version, which did not store the constants of the model; "
            "Heddle compares shapes of tensors, but not heads, epsilons and rotary embedding\n");
  EXPECT_FALSE(ReadRunState(checkpoint)->config.has_value());
  RunState other = State();
  other.seed = 43;
  EXPECT_NE(Said(checkpoint, other)
                .find("refused: STEP was trained with --debug.seed=42, this job "
                      "has 43"),
            std::string::npos);
  EXPECT_NE(Said(checkpoint, State("llama3", "debugmodel"))
                .find("refused: STEP was trained with "
                      "--model=deepseek_v3, this job "
                      "has llama3"),
            std::string::npos);
}

TEST_F(RunStateTest, OtherSettingsAreNamed) {
  RunState other = State();
  other.settings = {{"optimizer.lr", "0.001"}, {"precision", "f32"}, {"optimizer.new", "1"}};
  EXPECT_EQ(Said(Saved(FormatRunState(State())), other),
            "--optimizer.lr is 0.001, but the checkpoint was trained with 0.0008\n");
}

TEST_F(RunStateTest, AnotherOptimizerIsRefused) {
  RunState other = State();
  other.settings = {{"optimizer.name", "Muon"}};
  std::string refused =
      "refused: STEP was trained with --optimizer.name={}, this job has {}; resume with "
      "--optimizer.name={}, or begin in another --checkpoint.folder\n";
  // Checkpoints of older versions do not name it.
  EXPECT_EQ(Said(Saved(FormatRunState(State())), other),
            fmt::format(fmt::runtime(refused), "AdamW", "Muon", "AdamW"));
  EXPECT_EQ(Said(Saved(FormatRunState(other)), State()),
            fmt::format(fmt::runtime(refused), "Muon", "AdamW", "Muon"));
}

TEST_F(RunStateTest, AnotherMeshLearnsWhichFlagKeepsTheBatch) {
  Checkpoint checkpoint = Saved(FormatRunState(State()));
  RunState other = State();
  other.data = "tokens=100+0 hash=1 seq_len=16 global_batch=4 seed=42";
  std::string begin =
      "refused: STEP was trained with a global batch of 8 sequences, but this job has 4; ";
  EXPECT_EQ(Said(checkpoint, other, {.local = 1, .ranks = 4}),
            begin + "--training.global_batch_size=8 keeps it\n");
  EXPECT_EQ(Said(checkpoint, other, {.local = 3, .ranks = 2}),
            begin + "--training.global_batch_size=8 with --training.local_batch_size=4 keeps it\n");
  EXPECT_EQ(Said(checkpoint, other, {.local = 1, .ranks = 3}),
            begin +
                "no local batch size keeps it on 3 data-parallel ranks; use a mesh whose number "
                "of data-parallel ranks divides 8\n");
  other.data = "tokens=100+0 hash=2 seq_len=32 global_batch=4 seed=42";
  EXPECT_EQ(Said(checkpoint, other),
            "refused: STEP was trained on other data: global_batch 8, but this job has 4; hash 1, "
            "but this "
            "job has 2; seq_len 16, but this job has 32\n");
}

}  // namespace
}  // namespace heddle::run
