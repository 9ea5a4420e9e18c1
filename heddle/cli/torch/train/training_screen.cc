// What a training run says before it begins, and whether it fits into memory.
#include "heddle/base/text.h"
#include "heddle/cli/pass_costs.h"
#include "heddle/cli/torch/train/training_job.h"
#include "heddle/train/device.h"

namespace heddle {
namespace {

// What ranks of one process need together. They share results that are equal on all of them, so it is known between limits: each has
// its state, and one of them all else at least.
struct Need {
  Bytes least;
  Bytes most;
};

Need NeedOf(const StepSummary& summary, int64_t ranks_here) {
  Bytes state = summary.param_bytes + summary.optimizer_bytes;
  return {state * (ranks_here - 1) + summary.peak_bytes, summary.peak_bytes * ranks_here};
}

std::string FormatNeed(const Need& need) {
  if (need.least == need.most) return Format(need.most);
  return fmt::format("{} to {}", Format(need.least), Format(need.most));
}

}  // namespace

// Ranks share the memory of a machine, but each that is a process has a GPU of its own.
int64_t TrainingJob::RanksHere() const {
  bool processes = peers_ != nullptr || flags_.process.processes > 0;
  return processes && !device_.is_cpu() ? 1 : ranks();
}

// Who only launches ranks does not touch their GPUs.
DeviceMemory TrainingJob::OwnMemory() const {
  if (flags_.process.processes > 0 && !device_.is_cpu()) return {};
  return ReadMemory(device_);
}

std::string TrainingJob::Screen() const {
  const Model& model = planned_->model;
  std::string out;
  auto line = [&](std::string_view what, const std::string& text) {
    out += fmt::format("{:<12} {}\n", what, text);
  };
  line("model",
       fmt::format("{} {}, {} parameters, {}", model.config.family->name, model.config.flavor,
                   WithCommas(model.parameter_count()), flags_.model.precision));
  bool here = flags_.process.processes == 0;
  line("mesh", fmt::format("[{}], {} {}", Format(step_.mesh), Counted(ranks(), "rank"),
                           here ? "in this process" : "in a process each"));
  int64_t rows = accumulated_ * model.batch.batch;
  line("batch", fmt::format("{} x {} tokens{}, {} in all", rows, model.batch.seq_len,
                            accumulated_ > 1 ? fmt::format(" in {} parts", accumulated_) : "",
                            Counted(flags_.train.steps, "step")));
  line("data", dataset_->Describe());
  DeviceMemory memory = OwnMemory();
  line("memory",
       fmt::format(
           "{} a rank; {} needed here{}", Format(summary_.peak_bytes),
           FormatNeed(NeedOf(summary_, RanksHere())),
           memory.available ? fmt::format(", {} available", Format(*memory.available)) : ""));
  line("work", fmt::format("{} a rank and step", Format(summary_.flops * accumulated_)));
  line("pipeline", flags_.compile.PipelineName(planned_->plan.decisions));
  return out + FormatCosts(report_) + "\n";
}

Status TrainingJob::CheckMemory() const {
  DeviceMemory memory = OwnMemory();
  Need need = NeedOf(summary_, RanksHere());
  if (!memory.available || need.least <= *memory.available) return Done{};
  Bytes state = (summary_.param_bytes + summary_.optimizer_bytes) * RanksHere();
  bool state_alone = state > *memory.available;
  return Error(Diag::kInfeasible,
               "training needs at least {} here, {} of it parameters and moments of {}; {} are "
               "available; {}",
               Format(need.least), Format(state), Counted(RanksHere(), "rank"),
               Format(*memory.available),
               state_alone ? "a larger --parallelism.data_parallel_shard_degree instead of "
                             "replicas, more machines, or a smaller flavor would make it fit"
                           : "a smaller --training.local_batch_size or --training.seq_len, or "
                             "--parallelism.fsdp_reshard_after_forward=always, would make it fit");
}

}  // namespace heddle
