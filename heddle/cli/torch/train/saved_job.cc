#include "heddle/cli/torch/train/saved_job.h"

#include <nlohmann/json.hpp>

#include "heddle/train/resume.h"

namespace heddle {

Result<SavedJob> OpenSavedJob(const std::string& folder, std::optional<int64_t> step) {
  HEDDLE_TRY(std::optional<Checkpoint> found, OpenCheckpoint(folder, {.step = step}));
  if (!found) return Error(Diag::kCheckpoint, "{} has no checkpoint", folder);
  SavedJob job;
  job.step = found->step();
  job.notes = found->notes();
  job.flags = std::make_unique<TrainingFlags>();
  Flags flags;
  job.flags->Declare(flags);
  std::vector<std::string> args = {"--config=" + folder + "/job.toml"};
  HEDDLE_RETURN_IF_ERROR(flags.Read("train", args));
  // One sequence, whatever the batch of the job was.
  job.flags->model.local_batch_size = 1;
  HEDDLE_TRY(Model model, job.flags->model.Make());
  job.model = std::make_unique<Model>(std::move(model));
  SavedState state = StateOf(*found, *job.model);
  for (const ParamSpec& param : job.model->params) {
    const TensorInfo* info = found->Find(param.name);
    if (info == nullptr || info->shape != param.shape)
      return Error(Diag::kCheckpoint, "{} has no `{}` of the shape that job.toml asks for",
                   found->path(), param.name);
  }
  for (const StepInput& input : job.model->inputs) {
    if (!IsState(input) || found->Find(input.name) == nullptr) continue;
    HEDDLE_TRY(job.model->state[input.name], state.buffer(input.name));
  }
  job.params = [held = state.held](size_t param) { return held(Held::kParam, param); };
  auto said = nlohmann::json::parse(found->state(), nullptr, /*allow_exceptions=*/false);
  job.text = said.is_object() && said.value("text", false);
  return job;
}

}  // namespace heddle
