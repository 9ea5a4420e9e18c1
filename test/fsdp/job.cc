#include "test/fsdp/job.h"

#include <gtest/gtest.h>

#include "heddle/compile/compile.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/run/train/exact.h"
#include "heddle/run/verify/eager_run.h"

namespace heddle {
namespace {

constexpr uint64_t kSeed = 7;

run::Model MakeSmall(const JobOptions& options) {
  run::ModelConfig config = *run::FindModel(options.family, options.flavor);
  config.n_layers = 2;
  config.dim = options.odd ? 66 : 64;
  config.n_heads = options.odd ? 11 : 4;
  config.n_kv_heads = config.n_heads;
  config.head_dim = options.odd ? 6 : 16;
  config.ffn_dim = options.odd ? 101 : 96;
  config.vocab_size = options.odd ? 251 : 128;
  if (config.mla.kv_rank > 0)
    config.mla = {.kv_rank = 32, .nope_dim = 16, .rope_dim = 8, .v_dim = 16};
  if (config.moe.experts > 0) config.moe.ffn_dim = 32;
  config.moe.experts = std::min<int64_t>(config.moe.experts, 8);
  config.moe.top_k = std::min<int64_t>(config.moe.top_k, 3);
  int64_t batch = options.replicate * options.shard;
  return *run::MakeModel(config, {.batch = batch, .seq_len = 16},
                         {options.compute, run::AttentionKind::kFlash, run::Target::kCpu});
}

}  // namespace

FsdpJob::FsdpJob(const JobOptions& options)
    : options_(options),
      model_(MakeSmall(options)),
      whole_(*run::CaptureModel(model_, run::OptimizerOptions())) {
  run::MakeExact();
}

Module FsdpJob::Compiled(const std::string& pipeline) const {
  std::vector<MeshAxis> axes;
  compile::PresetOptions presets;
  for (auto [preset, axis, ranks] :
       {std::tuple("replicate", "rep", options_.replicate),
        std::tuple("shard", "dp", options_.shard), std::tuple("tensor", "tp", options_.tensor)}) {
    if (ranks == 1) continue;
    axes.push_back({axis, ranks});
    presets.axes.emplace(preset, axis);
  }
  compile::Plan plan =
      *compile::MakePlan(whole_.graphs[0], Mesh(axes), model_.config.family->rules(), presets);
  Module module = whole_;
  Result<compile::CompileReport> report = compile::Compile(module, plan, {.pipeline = pipeline});
  EXPECT_TRUE(report.ok()) << Format(report.diagnostics());
  return module;
}

run::GraphRunMaker FsdpJob::Runs(const Module& graph, const run::Reducer& reducer) const {
  return [this, &graph, reducer]() -> Result<std::unique_ptr<run::GraphRun>> {
    run::SessionOptions options;
    options.program.reducer = reducer;
    options.params = run::InitialParams(model_, kSeed);
    options.batches = run::SyntheticBatches(model_, kSeed);
    HEDDLE_TRY(run::Session session, run::Session::Make(model_, graph, options));
    return std::unique_ptr<run::GraphRun>(std::make_unique<run::Session>(std::move(session)));
  };
}

Result<run::VerifyReport> FsdpJob::Train(const Module& graph, const run::Reducer& reducer,
                                         run::VerifyOptions options) const {
  options.lr = [](int64_t) { return 1e-3; };
  options.params = model_.params.size();
  options.graph = Runs(graph, reducer);
  return run::Verify(options);
}

Result<run::VerifyReport> FsdpJob::AgainstEager(const Module& graph, const run::Reducer& reducer,
                                                int64_t steps) const {
  run::VerifyOptions options;
  options.steps = steps;
  options.eager = [&] {
    return run::MakeEagerRun(model_, {.replicate = options_.replicate,
                                      .shard = options_.shard,
                                      .tensor = options_.tensor,
                                      .reducer = reducer,
                                      .optimizer = {},
                                      .params = run::InitialParams(model_, kSeed),
                                      .batches = run::SyntheticBatches(model_, kSeed)});
  };
  return Train(graph, reducer, std::move(options));
}

Result<run::VerifyReport> FsdpJob::Against(const Module& graph, const Module& other,
                                           const run::Reducer& reducer, int64_t steps) const {
  run::VerifyOptions options;
  options.steps = steps;
  options.other_graph = Runs(other, reducer);
  return Train(graph, reducer, std::move(options));
}

std::string Describe(const Result<run::VerifyReport>& report) {
  if (!report.ok()) return Format(report.diagnostics());
  if (!report->finite) return "a loss that is not finite";
  if (!report->differs()) return "equal";
  const run::StepRow& row = report->rows.back();
  return fmt::format("step {} differs on rank {}", row.step, row.comparison.first->rank);
}

}  // namespace heddle
