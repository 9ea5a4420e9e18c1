#include "heddle/api/job_run.h"

#include <ATen/Context.h>

#include "heddle/api/rank_work.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/run/models/family.h"
#include "heddle/run/train/pipeline_run.h"

namespace heddle {

Status JobRun::OpenDevice(std::optional<int64_t> processes, std::optional<int64_t> local_rank) {
  processes_ = processes;
  local_rank_ = local_rank;
  HEDDLE_TRY(device_, given_.model.Open(local_rank.value_or(0)));
  std::string note = given_.model.DeviceNote(at::hasCUDA());
  if (local_rank.value_or(0) == 0 && !note.empty()) observer_.Note(note);
  if (local_rank.value_or(0) == 0 && RoundsUpdatesTwice())
    observer_.Note(
        "on a GPU this optimizer multiplies by the learning rate and adds in two roundings, and "
        "PyTorch in one: weights differ from PyTorch's in their last bits");
  HEDDLE_RETURN_IF_ERROR(given_.parallel.CheckPlanIsFile());
  HEDDLE_TRY(reducer_, given_.optimization.MakeReducer(processes.has_value(), device_.type()));
  kernels_ =
      given_.optimization.OwnKernels(device_, [this](const std::string& line) { Say(line); });
  HEDDLE_TRY(schedule_,
             given_.loop.MakeSchedule(given_.optimization.steps, given_.optimization.lr));
  return Done{};
}

Status JobRun::CompileGraphs(bool for_training) {
  HEDDLE_TRY(bool masked, run::HasLossMask(given_.loop.dataset, given_.loop.tokenizer));
  // A graph that counts labels itself would divide by 0.
  if (masked && model_options_.loss_divisor == run::LossDivisor::kValidTokens)
    model_options_.loss_divisor = run::LossDivisor::kGiven;
  StepGraphOptions graphs{model_options_, given_.parallel, given_.compile,
                          given_.optimization.optimizer};
  graphs.global_batch = given_.loop.global_batch_size;
  graphs.validates = given_.loop.validation_interval > 0;
  graphs.metrics = for_training;
  graphs.measure = for_training;
  graphs.on_compiled = [this](const compile::CompileReport& report) { observer_.Compiled(report); };
  HEDDLE_TRY(compiled_, CompileStep(graphs));
  return Done{};
}

Status JobRun::OpenInputs() {
  if (processes_.value_or(0) > 0)
    HEDDLE_RETURN_IF_ERROR(CheckProcesses(*processes_, planned().layout.mesh));
  auto seed = static_cast<uint64_t>(given_.optimization.seed);
  run::Model& model = compiled_->planned.model;
  HEDDLE_TRY(params_, given_.model.Params(model, seed));
  HEDDLE_TRY(dataset_, given_.loop.OpenDataset(model, compiled_->planned.sequences(), seed));
  return Done{};
}

Status JobRun::Agree(run::Peers& peers) {
  peers_ = &peers;
  std::string texts = heddle::Print(graphs().step);
  for (const std::optional<Module>* other : {&graphs().first, &graphs().more, &graphs().forward}) {
    if (*other) texts += heddle::Print(**other);
  }
  return AgreeOnJob(peers, given_.values,
                    fmt::format("model {}\nmesh [{}]\nplan {:016x}\ngraphs {:016x}\ndata {}",
                                model().config.family->name, Format(graphs().step.mesh),
                                Hash64(compile::FormatPlan(planned().plan)), Hash64(texts),
                                dataset_->Fingerprint()));
}

run::SessionOptions JobRun::OptionsOfSession(bool lockstep) const {
  run::SessionOptions options;
  options.program = {
      .device = device_, .reducer = reducer_, .threads = given_.optimization.threads};
  if (peers_ != nullptr && !lockstep)
    options.program_of = [this](const Module& module) { return OwnRank(*peers_, module, device_); };
  if (kernels_)
    options.kernels = [this](const Graph& graph, const auto& copies) {
      return run::ArrangeKernels(graph, *kernels_, copies);
    };
  options.recorder = given_.optimization.Recorder(device_);
  options.notice = [this](const std::string& line) { Say(line); };
  options.params = params_;
  options.batches = BatchesOf(*dataset_, run::DataSplit::kTrain, model().batch.seq_len);
  options.accumulated = micro_batches();
  options.count_ignored = given_.model.loss_divisor == run::LossDivisor::kAllTokens;
  return options;
}

Result<std::unique_ptr<run::GraphRun>> JobRun::MakeGraphRun(
    const StepGraphs& graphs, const run::SessionOptions& options) const {
  // A process with one rank runs one coordinate.
  if (ProgramAxis(graphs.step) && !options.program_of) {
    HEDDLE_TRY(std::unique_ptr<run::PipelineRun> run,
               run::PipelineRun::Make(model(), graphs.modules(), options));
    return std::unique_ptr<run::GraphRun>(std::move(run));
  }
  HEDDLE_TRY(run::Session session, run::Session::Make(model(), graphs.modules(), options));
  return std::unique_ptr<run::GraphRun>(std::make_unique<run::Session>(std::move(session)));
}

}  // namespace heddle
