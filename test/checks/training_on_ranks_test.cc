// Passes that schedule FSDP on random training steps: each step runs on ranks before and after, and computes the same bits.
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "heddle/base/file.h"
#include "heddle/ir/parse.h"
#include "heddle/ir/print.h"
#include "heddle/ops/ops.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/passes.h"
#include "test/checks/random_training.h"
#include "test/checks/run_module.h"

namespace heddle {
namespace {

constexpr uint32_t kSteps = 2000;

constexpr const char* kPipelines[] = {
    "reshard-after-forward",
    "reshard-after-forward{policy=always}",
    "reshard-after-forward{policy=\"never,layers.0=always\"}",
    "bucket-by-unit",
    "bucket-by-unit{order=graph,plan=\"layers.0 layers.1\"}",
    "bucket-by-size{max_bytes=1KiB}",
    "bucket-by-size",
    "separate-communicators",
    "prefetch",
    "prefetch{forward=3,backward=2,reductions=4,max_bytes=2KiB}",
    "fsdp",
    "auto_bucketing, fsdp",
    "fsdp, clean, fsdp",
    "checkpoint{policy=full}, rematerialize",
    "partition, join",
    "checkpoint{kept=offload}, rematerialize, offload{prefetch=5}, fsdp",
    "checkpoint{policy=\"full:2,min-cut\"}, rematerialize, partition, clean, join, fsdp",
    "checkpoint{policy=layers:2}, rematerialize, fsdp",
    "checkpoint, rematerialize",
    "clean, checkpoint{policy=min-cut}, rematerialize, fsdp",
};

TEST(TrainingOnRanks, ComputesTheSameBits) {
  at::set_num_threads(1);
  TempDir scratch;
  ManagerOptions options;
  options.reproducer_dir = scratch.path();
  std::vector<int> changed(std::size(kPipelines));
  for (uint32_t seed = 0; seed < kSteps; ++seed) {
    std::string text = RandomTraining(seed);
    Result<Module> before = ParseModule(text, "random", Ops());
    ASSERT_TRUE(before.ok()) << text << Format(before.diagnostics());
    auto expected = RunOnRanks(*before, seed);
    ASSERT_TRUE(expected.ok()) << text << Format(expected.diagnostics());
    for (size_t p = 0; p < std::size(kPipelines); ++p) {
      Module after = *before;
      Result<RunReport> report =
          RunPipeline(after, *ParsePipeline(kPipelines[p], Passes()), options);
      ASSERT_TRUE(report.ok()) << seed << " " << kPipelines[p] << text
                               << Format(report.diagnostics());
      for (const PassRecord& record : report->passes) changed[p] += record.changed == Changed::kYes;
      auto outputs = RunOnRanks(after, seed);
      ASSERT_TRUE(outputs.ok()) << Format(outputs.diagnostics());
      for (size_t rank = 0; rank < outputs->size(); ++rank) {
        ASSERT_EQ(WhyDifferent((*outputs)[rank], (*expected)[rank], Likeness::kBits), "")
            << "step " << seed << ", " << kPipelines[p] << ", rank " << rank << "\n"
            << text << "became\n"
            << Print(after);
      }
    }
  }
  for (size_t p = 0; p < std::size(kPipelines); ++p)
    EXPECT_GT(changed[p], static_cast<int>(kSteps / 2)) << kPipelines[p];
}

}  // namespace
}  // namespace heddle
