// Compares the predicted memory of a training run with the bytes allocated at every node of five
// steps: with gradient accumulation, validation, checkpoints, undo and several ranks.
#include <numeric>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/base/file.h"
#include "heddle/run/train/resume.h"
#include "heddle/run/train/run_memory.h"
#include "test/checks/narrow_model.h"
#include "test/parallel/counting_allocator.h"
#include "test/parallel/ranks.h"

namespace heddle {
namespace {

struct MemoryJob {
  const char* name;
  const char* family;
  const char* flavor;
  int64_t batches;
  std::vector<MeshAxis> mesh;
  run::AdamW optimizer = run::AdamW::kFused;
  bool remembers = false;
};

void PrintTo(const MemoryJob& job, std::ostream* out) { *out << job.name; }

// The graphs of a job, as `heddle train` compiles them.
class JobGraphs {
 public:
  explicit JobGraphs(const MemoryJob& job) : job_(job) {
    run::ModelConfig config = *run::FindModel(job.family, job.flavor);
    MakeNarrow(config);
    config.vocab_size = 2048;
    if (config.moe.experts > 0) {
      config.moe.experts = 4;
      config.moe.top_k = 2;
    }
    model_ = *run::MakeModel(config, {.batch = 4, .seq_len = 16},
                             {.compute = DType::kF32,
                              .attention = run::AttentionKind::kFlash,
                              .loss_divisor = job.batches > 1 ? run::LossDivisor::kGiven
                                                              : run::LossDivisor::kValidTokens});
    run::OptimizerOptions optimizer{.implementation = job.optimizer};
    step_ = Compiled({.optimizer = optimizer, .accumulate = job.batches > 1, .metrics = true});
    first_ = Compiled({.metrics = true});
    more_ = Compiled({.accumulate = true, .metrics = true});
    forward_ = Compiled({.forward_only = true});
  }

  run::StepModules modules() const {
    return {.step = &step_,
            .first = job_.batches > 1 ? &first_ : nullptr,
            .more = job_.batches > 2 ? &more_ : nullptr,
            .forward = &forward_};
  }
  const run::Model& model() const { return model_; }
  int64_t ranks() const { return step_.mesh.ranks(); }

  run::Session MakeSession() const {
    run::SessionOptions options;
    // Without sharing, each rank needs the predicted memory.
    options.program.share_results = false;
    options.params = run::InitialParams(model_, 1);
    options.batches = run::SyntheticBatches(model_, 1);
    options.accumulated = job_.batches;
    return *run::Session::Make(model_, modules(), options);
  }

 private:
  Module Compiled(const run::CaptureOptions& capture) const {
    Module whole = *run::CaptureModel(model_, capture);
    compile::PresetOptions preset{.axes = {{"shard", "dp"}}};
    if (job_.mesh.size() > 1) preset.axes.emplace("tensor", "tp");
    compile::Plan plan =
        *compile::MakePlan(whole.graphs[0], Mesh(job_.mesh), model_.config.family->rules(), preset);
    Module local = Parallelized(std::move(whole), plan);
    Result<compile::RunReport> report =
        compile::RunPipeline(local, *compile::ParsePipeline("fsdp", compile::Passes()));
    EXPECT_TRUE(report.ok()) << Format(report.diagnostics());
    return local;
  }

  MemoryJob job_;
  run::Model model_;
  Module step_;
  Module first_;
  Module more_;
  Module forward_;
};

// Checks the memory at every node of every graph of a run.
class MemoryWatch {
 public:
  MemoryWatch(int64_t before, int64_t ranks, const run::RunMemory& predicted)
      : before_(before), ranks_(ranks), predicted_(predicted) {}

  int64_t most() const { return most_; }

  run::Session::Watcher watcher() {
    return [this](const run::RankProgram&) -> run::RankProgram::Observer {
      return
          [this](NodeId, std::span<const run::Tensors>) { most_ = std::max(most_, allocated()); };
    };
  }
  // Between graphs only the state exists, and after a step its gradients.
  void LookBetween(const char* where, int64_t gradients) const {
    EXPECT_LE(most_, predicted_.peak.value * ranks_ + kScalars) << where;
    EXPECT_LE(allocated(), (predicted_.state.value + gradients) * ranks_ + kScalars) << where;
  }

  // Losses and numbers of the step.
  static constexpr int64_t kScalars = 4096;

 private:
  int64_t allocated() const { return CountingAllocator::live - before_; }

  int64_t before_;
  int64_t ranks_;
  run::RunMemory predicted_;
  int64_t most_ = 0;
};

class RunMemoryTest : public testing::TestWithParam<MemoryJob> {};

TEST_P(RunMemoryTest, IsWhatWasPredictedForFiveSteps) {
  at::set_num_threads(1);
  CountingAllocator allocator;
  JobGraphs graphs(GetParam());
  run::RunMemory predicted =
      run::MemoryOfRun(graphs.modules(), GetParam().remembers, /*with_host=*/true)[0];
  int64_t gradients = 0;
  for (const Input& input : graphs.modules().step->graphs[0].inputs()) {
    const Graph& graph = graphs.modules().step->graphs[0];
    if (input.role == InputRole::kParam)
      gradients += graph.types().bytes(graph.type(input.value)).value;
  }
  TempDir folder;
  std::vector<int64_t> ranks(static_cast<size_t>(graphs.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  run::CheckpointWriterOptions save;
  save.folder = folder.path();
  save.world = graphs.ranks();
  save.ranks = ranks;
  auto writer = *run::CheckpointWriter::Open(save);
  MemoryWatch watch(CountingAllocator::live, graphs.ranks(), predicted);
  run::Session session = graphs.MakeSession();
  run::BatchSource validation = run::SyntheticBatches(graphs.model(), 2);
  for (int step = 1; step <= 5; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    if (GetParam().remembers) session.Remember();
    ASSERT_TRUE(session.Step(1e-3, watch.watcher()).ok());
    watch.LookBetween("after the step", gradients);
    ASSERT_TRUE(session.Evaluate(validation, 1, watch.watcher()).ok());
    watch.LookBetween("after validation", 0);
    ASSERT_TRUE(writer->Save(run::SnapshotOf(session, graphs.model(), "{}")).ok());
    watch.LookBetween("after a save", 0);
  }
  ASSERT_TRUE(writer->Finish().ok());
  // The bound is tight: ranks share only tokens, labels and rotation tables.
  EXPECT_GE(static_cast<double>(watch.most()),
            0.999 * static_cast<double>(predicted.peak.value * graphs.ranks()));
}

INSTANTIATE_TEST_SUITE_P(
    All, RunMemoryTest,
    testing::Values(
        MemoryJob{"alone", "llama3", "debugmodel", 1, {{"dp", 1}}},
        MemoryJob{"two_batches", "llama3", "debugmodel", 2, {{"dp", 1}}},
        MemoryJob{"three_batches", "qwen3", "debugmodel", 3, {{"dp", 2}}},
        MemoryJob{"ranks", "llama3", "debugmodel", 1, {{"dp", 2}, {"tp", 2}}},
        MemoryJob{"ranks_and_batches", "llama3", "debugmodel", 3, {{"dp", 2}, {"tp", 2}}},
        MemoryJob{"experts", "deepseek_v3", "debugmodel", 2, {{"dp", 2}}},
        MemoryJob{"for_loop", "llama3", "debugmodel", 2, {{"dp", 2}}, run::AdamW::kForLoop},
        MemoryJob{"undo", "llama3", "debugmodel", 2, {{"dp", 2}}, run::AdamW::kFused, true}),
    [](const testing::TestParamInfo<MemoryJob>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace heddle
