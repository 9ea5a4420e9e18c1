// Runs passes that schedule FSDP on random training steps. Each step runs on ranks before and after
// the passes, and must compute the same bits. A step that does not is reduced and printed.
//
//   training_on_ranks_test [--steps=250] [--seed=0]
#include <gtest/gtest.h>

#include <charconv>

#include <ATen/Parallel.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/manager/reduce.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/file.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "test/checks/random_training.h"
#include "test/checks/run_module.h"

namespace heddle {
namespace {

// The command-line arguments.
struct Range {
  uint32_t steps = 250;
  uint32_t seed = 0;
} range;

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

class Check {
 public:
  Check(const compile::Pipeline& pipeline, uint32_t seed, const compile::ManagerOptions& options)
      : pipeline_(pipeline), seed_(seed), options_(options) {}

  // Returns the fault of the step after the pipeline; empty if there is none.
  std::string Run(const Module& before) {
    auto expected = RunOnRanks(before, seed_);
    if (!expected.ok()) return "does not run: " + Format(expected.diagnostics());
    return Run(before, *expected);
  }
  // The same with known results of the step.
  std::string Run(const Module& before, const std::vector<std::vector<at::Tensor>>& expected) {
    Module after = before;
    Result<compile::RunReport> report = compile::RunPipeline(after, pipeline_, options_);
    if (!report.ok()) return "is refused: " + Format(report.diagnostics());
    for (const compile::PassRecord& record : report->passes)
      changed_ += record.changed == Changed::kYes;
    auto outputs = RunOnRanks(after, seed_);
    if (!outputs.ok()) return "no longer runs: " + Format(outputs.diagnostics());
    for (size_t rank = 0; rank < outputs->size(); ++rank) {
      std::string why = WhyDifferent((*outputs)[rank], expected[rank], Likeness::kBits);
      if (!why.empty()) return fmt::format("differs on rank {}: {}", rank, why);
    }
    return "";
  }
  int changed() const { return changed_; }

 private:
  const compile::Pipeline& pipeline_;
  uint32_t seed_;
  const compile::ManagerOptions& options_;
  int changed_ = 0;
};

// Returns a smaller step that fails in the same way.
std::string Reduced(const Module& module, const std::string& why, Check check) {
  compile::ReduceModuleOptions options;
  options.error = why.substr(0, why.find(' ', why.find(' ') + 1));
  Result<Module> reduced = compile::ReduceModule(
      module, [&](const Module& smaller) { return check.Run(smaller); }, options);
  return Print(reduced.ok() ? *reduced : module);
}

TEST(TrainingOnRanks, ComputesTheSameBits) {
  // The reducer forks, which threads do not survive.
  at::set_num_threads(1);
  TempDir scratch;
  compile::ManagerOptions options;
  options.reproducer_dir = scratch.path();
  std::vector<int> changed(std::size(kPipelines));
  for (uint32_t seed = range.seed; seed < range.seed + range.steps; ++seed) {
    std::string text = RandomTraining(seed);
    Result<Module> before = ParseModule(text, "random", Ops());
    ASSERT_TRUE(before.ok()) << text << Format(before.diagnostics());
    auto expected = RunOnRanks(*before, seed);
    ASSERT_TRUE(expected.ok()) << text << Format(expected.diagnostics());
    for (size_t p = 0; p < std::size(kPipelines); ++p) {
      compile::Pipeline pipeline = *compile::ParsePipeline(kPipelines[p], compile::Passes());
      Check check(pipeline, seed, options);
      std::string why = check.Run(*before, *expected);
      ASSERT_EQ(why, "") << "step " << seed << ", " << kPipelines[p] << "\n"
                         << Reduced(*before, why, check);
      changed[p] += check.changed();
    }
  }
  for (size_t p = 0; p < std::size(kPipelines); ++p)
    EXPECT_GT(changed[p], static_cast<int>(range.steps / 2)) << kPipelines[p];
}

// A wrong pass that replaces one function by another.
Result<Changed> TakeAnother(Graph& graph, compile::PassContext&) {
  Rewriter rewriter(graph);
  for (NodeId node : graph.nodes()) {
    if (graph[node].op == op::tanh) rewriter.SetOp(node, op::sin, graph[node].attrs);
  }
  return rewriter.Commit();
}
const compile::PassDef kLiar{.name = "liar", .summary = "", .run = compile::Run<TakeAnother>};

TEST(TrainingOnRanks, AFailureIsMadeSmall) {
  at::set_num_threads(1);
  Module module = *ParseModule(RandomTraining(0), "random", Ops());
  compile::PipelineItem item;
  item.pass = &kLiar;
  compile::Pipeline pipeline = {item};
  compile::ManagerOptions options;
  Check check(pipeline, 0, options);
  std::string why = check.Run(module);
  ASSERT_TRUE(why.starts_with("differs on rank")) << why;
  Module reduced = *ParseModule(Reduced(module, why, check), "reduced", Ops());
  EXPECT_LE(reduced.graphs[0].node_count(), 3u) << Print(reduced);
}

// Parses an argument such as `--steps=20000`.
void Read(std::string_view argument, std::string_view name, uint32_t& out) {
  if (!argument.starts_with(name)) return;
  argument.remove_prefix(name.size());
  std::from_chars(argument.data(), argument.data() + argument.size(), out);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    heddle::Read(argv[i], "--steps=", heddle::range.steps);
    heddle::Read(argv[i], "--seed=", heddle::range.seed);
  }
  return RUN_ALL_TESTS();
}
