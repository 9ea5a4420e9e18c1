#include "heddle/cli/torch/train/saved_job.h"

#include "heddle/core/base/text.h"
#include "heddle/run/sample/text_coder.h"
#include "heddle/run/train/resume.h"

namespace heddle {
namespace {

// The model stored in the checkpoint; the model of job.toml if an older version wrote the
// checkpoint.
Result<run::ModelConfig> ConfigOf(const ModelOptions& flags, const run::SavedRunState& run,
                                  const std::string& path, std::vector<std::string>& notes) {
  Result<run::ModelConfig> of_job = flags.Config();
  if (!run.config) {
    notes.push_back(
        fmt::format("{} was written by an older version, which did not store the model's "
                    "constants; using those of job.toml",
                    path));
    return of_job;
  }
  // The files of --model=hf may no longer exist.
  if (!of_job.ok()) return *run.config;
  for (const std::string& differ : run::DifferentConstants(*of_job, *run.config))
    notes.push_back(fmt::format("job.toml and {} have {}; using the latter", path, differ));
  return *run.config;
}

}  // namespace

Result<SavedJob> OpenSavedJob(const std::string& folder, std::optional<int64_t> step) {
  HEDDLE_TRY(std::optional<run::Checkpoint> found, run::OpenCheckpoint(folder, {.step = step}));
  if (!found) return Error(Diag::kCheckpoint, "{} has no checkpoint", folder);
  SavedJob job;
  job.step = found->step();
  job.notes = found->notes();
  job.flags = std::make_unique<TrainingFlags>();
  Flags flags;
  job.flags->Declare(flags);
  std::vector<std::string> args = {"--config=" + folder + "/job.toml"};
  HEDDLE_RETURN_IF_ERROR(flags.Read("train", args));
  // One sequence, regardless of the job's batch.
  job.flags->options.model.local_batch_size = 1;
  // Whatever trained it, its tensors are on the CPU.
  job.flags->options.model.device = run::Target::kCpu;
  job.flags->options.model.attention = run::AttentionKind::kFastest;
  // Its text is one document.
  job.flags->options.model.document_attention = false;
  HEDDLE_TRY(run::SavedRunState run, run::ReadRunState(*found));
  HEDDLE_TRY(run::ModelConfig config,
             ConfigOf(job.flags->options.model, run, found->path(), job.notes));
  HEDDLE_TRY(run::Model model, job.flags->options.model.MakeWith(config));
  job.model = std::make_unique<run::Model>(std::move(model));
  run::SavedState state = run::StateOf(*found, *job.model);
  for (const run::ParamSpec& param : job.model->params) {
    const run::TensorInfo* info = found->Find(param.name);
    if (info == nullptr || info->shape != param.shape)
      return Error(Diag::kCheckpoint, "{} has no `{}` with the shape in job.toml", found->path(),
                   param.name);
  }
  for (const run::StepInput& input : job.model->inputs) {
    if (!run::IsState(input) || found->Find(input.name) == nullptr) continue;
    HEDDLE_TRY(job.model->state[input.name], state.buffer(input.name));
  }
  job.params = [read = state.param_state](size_t param) {
    return read(run::StateKind::kParam, param);
  };
  job.text = run.text;
  const std::string& given = job.flags->options.loop.tokenizer;
  job.tokenizer = job.text ? given : run::FindTokenizer(given, job.flags->options.model.load_path);
  return job;
}

}  // namespace heddle
