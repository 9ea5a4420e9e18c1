#include "test/parallel/training.h"

#include <ATen/ops/eq.h>
#include <ATen/ops/remainder.h>

#include "test/checks/narrow_model.h"

#include "test/parallel/ranks.h"

namespace heddle {
namespace {

constexpr uint64_t kSeed = 3;

run::ModelConfig SmallConfig(const Debug& debug) {
  run::ModelConfig config = *run::FindModel(debug.family, debug.flavor);
  MakeNarrow(config);
  if (debug.key_heads > 0) config.n_kv_heads = debug.key_heads;
  // Large enough to change the choice of experts in the next step.
  config.moe.bias_rate = 0.05;
  return config;
}

}  // namespace

SmallJob::SmallJob(const Debug& debug, const Layout& layout, int64_t rows, int64_t seq_len)
    : layout_(layout) {
  if (debug.compute == DType::kBF16 && layout.context == 1) seq_len = std::min<int64_t>(seq_len, 4);
  int64_t batch = rows * layout.replicate * layout.shard;
  model_ = std::make_unique<run::Model>(*run::MakeModel(
      SmallConfig(debug), {.batch = batch, .seq_len = seq_len, .documents = debug.documents},
      {debug.compute, run::AttentionKind::kFastest, run::Target::kCpu}));
  Module whole = *run::CaptureModel(*model_, run::OptimizerOptions());
  // Axes of size one are omitted, as on the command line, but a mesh needs one axis.
  std::vector<MeshAxis> axes;
  compile::PresetOptions preset{
      .axes = {}, .sequence_parallel = layout.sequence_parallel, .split_loss = layout.split_loss};
  auto add = [&](const char* name, const char* axis, int64_t degree) {
    axes.push_back({axis, degree});
    preset.axes.emplace(name, axis);
  };
  if (layout.replicate > 1) add("replicate", "rep", layout.replicate);
  if (layout.shard > 1 || layout.replicate * layout.context * layout.tensor == 1)
    add("shard", "dp", layout.shard);
  if (layout.context > 1) {
    add("context", "cp", layout.context);
    if (layout.context_split.head_tail) axes.back().role = AxisRole::kHeadTail;
    preset.context_heads = layout.context_split.heads;
    preset.context_ring = layout.context_split.ring;
  }
  if (layout.tensor > 1) add("tensor", "tp", layout.tensor);
  if (layout.expert > 1)
    compile::ChooseExpertAxes(layout.expert, /*with_tensor=*/layout.expert_tensor == 1, axes,
                              preset);
  compile::Plan plan = *compile::MakePlan(whole.graphs[0], Mesh(std::move(axes)),
                                          model_->config.family->rules(), preset);
  layout_.context_split.latents = std::ranges::any_of(
      plan.modules,
      [](const compile::PlanModule& module) { return module.in && module.why == Why::kContext; });
  local_ = Parallelized(std::move(whole), plan);
}

run::BatchSource SmallJob::Batches() const {
  run::BatchSource batches = run::SyntheticBatches(*model_, kSeed);
  if (!model_->batch.documents) return batches;
  return [batches](int64_t step, int64_t first_row, int64_t rows) -> Result<run::Batch> {
    HEDDLE_TRY(run::Batch batch, batches(step, first_row, rows));
    batch.ends = batch.tokens.remainder(5).eq(0);
    batch.labels.masked_fill_(batch.ends, run::kIgnoredLabel);
    return batch;
  };
}

Result<std::unique_ptr<run::Session>> SmallJob::MakeSession(const Module& module,
                                                            const run::Reducer& reducer) const {
  run::SessionOptions options;
  options.program.reducer = reducer;
  options.params = run::InitialParams(*model_, kSeed);
  options.batches = Batches();
  HEDDLE_TRY(run::Session session, run::Session::Make(*model_, module, options));
  return std::make_unique<run::Session>(std::move(session));
}

Result<std::unique_ptr<run::TrainingRun>> SmallJob::MakeEager(const run::Reducer& reducer) const {
  return run::MakeEagerRun(*model_, {.replicate = layout_.replicate,
                                     .shard = layout_.shard,
                                     .context = layout_.context,
                                     .context_split = layout_.context_split,
                                     .tensor = layout_.tensor,
                                     .expert = layout_.expert,
                                     .sequence_parallel = layout_.sequence_parallel,
                                     .split_loss = layout_.split_loss,
                                     .expert_tensor = layout_.expert_tensor,
                                     .reducer = reducer,
                                     .optimizer = run::OptimizerOptions(),
                                     .params = run::InitialParams(*model_, kSeed),
                                     .batches = Batches()});
}

}  // namespace heddle
