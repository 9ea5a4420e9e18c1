// Pipelines of every schedule have the bits of eager training on the same mesh without a pipeline,
// which adds the gradients of micro-batches and reduces them once. Gradients are clipped.
#include <gtest/gtest.h>

#include "heddle/api/verification.h"
#include "heddle/core/base/file.h"

namespace heddle {
namespace {

struct Job {
  const char* schedule;
  int64_t pipeline;
  int64_t shard = 1;
  int64_t layers = 6;
  int64_t micro_batches = 4;
  DType precision = DType::kF32;
  int64_t replicate = 1;
  int64_t context = 1;
  int64_t tensor = 1;
  int64_t expert = 1;
  bool tied = false;
  const char* checkpoint = "";
  int64_t gather_every = 0;
  int64_t reduce_every = 0;
  // Batches of a step.
  int64_t batches = 1;
  const char* reshard = "";
  const char* passes = "";
  bool narrow = false;
  double max_norm = 1.0;
};

void PrintTo(const Job& job, std::ostream* out) {
  *out << fmt::format(
      "{} pp={} dp={} rep={} cp={} tp={} ep={} layers={} m={} {}{}{} gather={} reduce={} "
      "batches={} {}{}{}",
      job.schedule, job.pipeline, job.shard, job.replicate, job.context, job.tensor, job.expert,
      job.layers, job.micro_batches, Name(job.precision), job.tied ? " tied" : "", job.checkpoint,
      job.gather_every, job.reduce_every, job.batches, job.reshard, job.passes,
      job.narrow ? " narrow" : "");
}

VerificationOptions OptionsOf(const Job& job) {
  VerificationOptions options;
  options.model.model = job.expert > 1 ? "qwen3" : "llama3";
  options.model.flavor = job.expert > 1 ? "debugmodel_moe" : "debugmodel";
  options.model.device = run::Target::kCpu;
  options.model.deterministic = true;
  options.model.precision = job.precision;
  options.model.seq_len = 16;
  options.model.local_batch_size = job.micro_batches;
  // Small sizes, because bf16 is slow on CPUs.
  options.model.sizes = {
      {"n_layers", job.layers}, {"dim", 64}, {"n_heads", 4}, {"n_kv_heads", 2}, {"ffn_dim", 96}};
  if (job.expert > 1) {
    options.model.sizes.insert(
        {{"head_dim", 16}, {"moe.experts", 4}, {"moe.top_k", 2}, {"moe.ffn_dim", 32}});
  }
  options.parallel.pipeline.degree = job.pipeline;
  options.parallel.pipeline.schedule = job.schedule;
  if (job.tied) options.model.switches["tied"] = true;
  options.compile.checkpoint_mode = job.checkpoint;
  options.parallel.pipeline.gather_every = job.gather_every;
  options.parallel.pipeline.reduce_every = job.reduce_every;
  options.parallel.narrow_gradients = job.narrow;
  options.compile.reshard = job.reshard;
  options.compile.pipeline = job.passes;
  options.optimization.optimizer.max_norm = job.max_norm;
  if (job.batches > 1)
    options.loop.global_batch_size = job.batches * job.micro_batches * job.replicate * job.shard;
  options.parallel.degrees = {job.replicate, job.shard, job.context, job.tensor};
  options.parallel.expert = job.expert;
  options.optimization.steps = 3;
  return options;
}

class PipelineTraining : public testing::TestWithParam<Job> {};

TEST_P(PipelineTraining, HasTheBitsOfEagerTraining) {
  VerificationOptions options = OptionsOf(GetParam());
  VerifyObserver observer;
  Result<run::VerifyReport> report = api::Verify(options, observer);
  ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
  ASSERT_EQ(report->rows.size(), 3u);
  for (const run::StepRow& row : report->rows) {
    EXPECT_EQ(row.comparison.differing_bits, 0) << "step " << row.step;
    EXPECT_GT(row.comparison.tensors, 0u);
  }
  EXPECT_TRUE(report->finite);
}

TEST(PipelineTraining, RunsTheScheduleOfAFile) {
  VerificationOptions options = OptionsOf({"", 2, 2, 4, 2});
  std::string file = testing::TempDir() + "schedule.csv";
  // The second stage computes its micro-batches one after the other.
  ASSERT_TRUE(WriteFile(file, "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1B1\n").ok());
  options.parallel.pipeline.schedule_csv = file;
  VerifyObserver observer;
  Result<run::VerifyReport> report = api::Verify(options, observer);
  ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
  for (const run::StepRow& row : report->rows) EXPECT_EQ(row.comparison.differing_bits, 0);
  options.parallel.pipeline.micro_batches = 1;
  EXPECT_FALSE(api::Verify(options, observer).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, PipelineTraining,
    testing::Values(Job{"GPipe", 2, 2}, Job{"1F1B", 2, 2}, Job{"1F1B", 4, 1, 6, 5},
                    Job{"1F1B", 4, 2, 6, 2}, Job{"1F1B", 2, 4},
                    Job{"1F1B", 2, 2, 6, 4, DType::kBF16}, Job{"1F1B", 2, 1, 6, 4, DType::kF32, 2},
                    Job{"Interleaved1F1B", 2, 2, 6, 4}, Job{"LoopedBFS", 2, 2, 6, 4},
                    Job{"ZB-H1", 2, 2, 6, 6}, Job{"InterleavedZeroBubble", 2, 1, 6, 4},
                    Job{"ZBVZeroBubble", 2, 2, 6, 5}, Job{"DualPipeV", 2, 2, 6, 8, DType::kBF16}));

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

INSTANTIATE_TEST_SUITE_P(
    Compositions, PipelineTraining,
    testing::Values(
        Job{.schedule = "1F1B", .pipeline = 2, .shard = 2, .precision = kF32, .tensor = 2},
        Job{.schedule = "ZBV", .pipeline = 2, .micro_batches = 5, .precision = kBF16, .tensor = 2},
        Job{.schedule = "1F1B", .pipeline = 2, .shard = 2, .layers = 4, .expert = 2},
        Job{.schedule = "Interleaved1F1B",
            .pipeline = 2,
            .shard = 2,
            .precision = kBF16,
            .expert = 2},
        Job{.schedule = "1F1B", .pipeline = 2, .context = 2},
        Job{.schedule = "ZBV", .pipeline = 2, .shard = 2, .precision = kBF16, .context = 2},
        Job{.schedule = "ZBV", .pipeline = 2, .shard = 2, .tied = true},
        Job{.schedule = "1F1B", .pipeline = 2, .shard = 2, .tied = true},
        Job{.schedule = "Interleaved1F1B",
            .pipeline = 2,
            .precision = kBF16,
            .tensor = 2,
            .tied = true},
        Job{.schedule = "ZB-H1",
            .pipeline = 4,
            .micro_batches = 5,
            .precision = kBF16,
            .tied = true},
        Job{.schedule = "1F1B", .pipeline = 2, .shard = 2, .checkpoint = "full"},
        Job{.schedule = "ZBV",
            .pipeline = 4,
            .micro_batches = 8,
            .precision = kBF16,
            .checkpoint = "full"},
        Job{.schedule = "Interleaved1F1B", .pipeline = 2, .shard = 2, .checkpoint = "selective"},
        // All stages share a table of positions that backward makes again.
        Job{.schedule = "ZBVZeroBubble", .pipeline = 2, .shard = 2, .checkpoint = "min-cut"}));

INSTANTIATE_TEST_SUITE_P(
    Groups, PipelineTraining,
    testing::Values(
        Job{.schedule = "1F1B", .pipeline = 2, .shard = 2, .gather_every = 1, .reduce_every = 1},
        Job{.schedule = "GPipe", .pipeline = 2, .shard = 2, .gather_every = 2, .reduce_every = 3},
        Job{.schedule = "LoopedBFS", .pipeline = 2, .shard = 2, .gather_every = 4},
        Job{.schedule = "ZBV",
            .pipeline = 2,
            .shard = 2,
            .micro_batches = 5,
            .precision = kBF16,
            .tied = true,
            .gather_every = 1,
            .reduce_every = 2},
        Job{.schedule = "1F1B",
            .pipeline = 2,
            .shard = 2,
            .precision = kBF16,
            .tied = true,
            .gather_every = 1,
            .reduce_every = 1,
            .narrow = true},
        Job{.schedule = "Interleaved1F1B",
            .pipeline = 2,
            .shard = 2,
            .precision = kBF16,
            .replicate = 2,
            .checkpoint = "full",
            .gather_every = 2,
            .reduce_every = 2},
        Job{.schedule = "1F1B",
            .pipeline = 2,
            .shard = 2,
            .gather_every = 1,
            .reduce_every = 3,
            .reshard = "never"},
        Job{.schedule = "1F1B",
            .pipeline = 2,
            .shard = 2,
            .layers = 4,
            .expert = 2,
            .gather_every = 1,
            .reduce_every = 1},
        // Transfers keep their order.
        Job{.schedule = "1F1B",
            .pipeline = 2,
            .shard = 2,
            .layers = 4,
            .gather_every = 2,
            .reduce_every = 2,
            .passes = "overlap"},
        // No ranks split the batch.
        Job{.schedule = "ZB-H1", .pipeline = 2, .reduce_every = 2}));

INSTANTIATE_TEST_SUITE_P(
    Accumulation, PipelineTraining,
    testing::Values(
        Job{.schedule = "1F1B", .pipeline = 2, .shard = 2, .micro_batches = 2, .batches = 2},
        Job{.schedule = "ZBV",
            .pipeline = 2,
            .precision = kBF16,
            .tied = true,
            .gather_every = 1,
            .reduce_every = 3,
            .batches = 3},
        Job{.schedule = "1F1B",
            .pipeline = 2,
            .shard = 2,
            .layers = 4,
            .micro_batches = 2,
            .expert = 2,
            .batches = 2,
            .max_norm = 0}));

}  // namespace
}  // namespace heddle
