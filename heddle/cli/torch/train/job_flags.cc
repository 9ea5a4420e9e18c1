#include "heddle/cli/torch/train/job_flags.h"

#include <ATen/ops/empty.h>

#include "heddle/base/text.h"
#include "heddle/cli/choice.h"

namespace heddle {
void JobFlags::DeclareSteps(Flags& flags) {
  flags.Option("--training.dataset", dataset,
               "what is learnt: text, the sources of heddle itself; synthetic, random tokens; or a "
               "file or folder (docs/data.md)");
  flags.Option("--training.global_batch_size", global_batch_size,
               "sequences in a step, over all ranks; gradients of several batches add up "
               "(default: one batch)",
               {.least = 0});
  flags.Option("--training.shuffle", shuffle,
               "true or false: sequences come in an order drawn from the seed");
  flags.Switch("--training.document_boundaries", document_boundaries,
               "the token behind the end of a document is no label");
  flags.Option("--training.document_end", document_end,
               "the token that ends a document, where files do not say");
  flags.Option("--lr_scheduler.warmup_steps", warmup_steps,
               "steps in which the learning rate rises", {.least = 0});
  flags.Option("--lr_scheduler.decay", decay,
               "how the learning rate falls: none, linear, cosine or sqrt");
  flags.Option("--lr_scheduler.decay_ratio", decay_ratio,
               "the share of steps in which it falls, the last ones; 1: all behind warm-up");
  flags.Option("--lr_scheduler.min_lr_factor", min_lr_factor,
               "what it falls to, as a share of the full rate");
  flags.Option("--validation.interval", validation_interval,
               "compute the loss of held-out data every N steps (0: never)", {.least = 0});
  flags.Option("--validation.steps", validation_steps, "batches of held-out data in a validation",
               {.least = 1});
}

void JobFlags::Declare(Flags& flags) {
  DeclareSteps(flags);
  flags.Option("--checkpoint.folder", folder,
               "where checkpoints go; a run goes on from the newest in it (default: none are "
               "written)");
  flags.Option("--checkpoint.interval", save_interval,
               "save every so many steps, and behind the last; 0: behind the last alone",
               {.least = 0});
  flags.Option("--checkpoint.keep", keep, "how many of the newest stay; 0: all", {.least = 0});
  flags.Option("--checkpoint.async", async,
               "true or false: training goes on while files are written");
  flags.Option("--checkpoint.load_step", load_step, "go on from this step instead of the newest");
  flags.Option("--metrics.jsonl", jsonl, "a file that gets a line of JSON for each step");
  flags.Option("--metrics.tensorboard", tensorboard, "a folder for TensorBoard's events");
  flags.Option("--metrics.cluster", cluster,
               "whose devices' peak mfu is a share of, by name or as a path to a JSON file "
               "(default: the one that has the GPU of this machine)");
  flags.Option("--metrics.log_freq", log_every, "print every so many steps", {.least = 1});
  flags.Option("--debug.deterministic", deterministic,
               "true or false: the same bits in every run; false lets oneDNN, threads and kernels "
               "of GPUs that add in any order make it faster");
  flags.Option("--fault.on_nan", on_nan,
               "a loss that is not finite: stop, or skip the step; skipping keeps a copy of the "
               "state");
  flags.Option("--fault.on_spike", on_spike,
               "a loss far above the last 20: ignore, stop, or skip the step");
  flags.Option("--fault.spike_factor", spike_factor, "how far above, as a multiple of their mean");
  flags.Option("--fault.max_restarts", max_restarts,
               "with --nproc: how often a job that lost a rank starts again", {.least = 0});
}

Result<Schedule> JobFlags::MakeSchedule(int64_t steps, double lr) const {
  ScheduleOptions options{.steps = steps,
                          .lr = lr,
                          .warmup_steps = warmup_steps,
                          .decay_ratio = decay_ratio,
                          .min_lr_factor = min_lr_factor};
  HEDDLE_TRY(options.decay, (Choose<Decay>("--lr_scheduler.decay", decay,
                                           {{"none", Decay::kNone},
                                            {"linear", Decay::kLinear},
                                            {"cosine", Decay::kCosine},
                                            {"sqrt", Decay::kSqrt}})));
  return Schedule::Make(options);
}

Result<OddLoss> JobFlags::OnNotFinite() const {
  return Choose<OddLoss>("--fault.on_nan", on_nan,
                         {{"stop", OddLoss::kStop}, {"skip", OddLoss::kSkip}});
}
Result<OddLoss> JobFlags::OnSpike() const {
  return Choose<OddLoss>(
      "--fault.on_spike", on_spike,
      {{"ignore", OddLoss::kIgnore}, {"stop", OddLoss::kStop}, {"skip", OddLoss::kSkip}});
}

Result<std::unique_ptr<Dataset>> JobFlags::OpenDataset(const Model& model, int64_t global_batch,
                                                       uint64_t seed) const {
  DatasetOptions options;
  options.source = dataset;
  options.vocab = model.config.vocab_size;
  options.seq_len = model.batch.seq_len;
  options.global_batch = global_batch;
  options.seed = seed;
  HEDDLE_TRY(options.shuffle, ChooseBool("--training.shuffle", shuffle));
  options.document_boundaries = document_boundaries;
  options.document_end = document_end;
  if (validation_interval > 0) options.held_out = 0.05;
  HEDDLE_TRY(std::unique_ptr<Dataset> opened, Dataset::Open(options));
  if (validation_interval > 0 && !opened->Has(DataSplit::kHeldOut))
    return Error(Diag::kBadChoice, "--validation.interval is {}, and {} has too little to hold out",
                 validation_interval, dataset);
  return opened;
}

Result<int64_t> JobFlags::Accumulated(int64_t rows) const {
  if (global_batch_size == 0) return 1;
  if (global_batch_size % rows == 0) return global_batch_size / rows;
  return Error(Diag::kModelSize,
               "--training.global_batch_size is {}, no multiple of the {} of all ranks",
               global_batch_size, Counted(rows, "sequence"));
}

BatchSource BatchesOf(const Dataset& dataset, DataSplit split, int64_t seq_len) {
  return
      [&dataset, split, seq_len](int64_t step, int64_t first_row, int64_t rows) -> Result<Batch> {
        Batch batch{at::empty({rows, seq_len}, at::kLong), at::empty({rows, seq_len}, at::kLong)};
        auto cells = [](const at::Tensor& t) {
          return std::span(t.mutable_data_ptr<int64_t>(), static_cast<size_t>(t.numel()));
        };
        HEDDLE_RETURN_IF_ERROR(
            dataset.Read(split, step, first_row, rows, cells(batch.tokens), cells(batch.labels)));
        return batch;
      };
}

}  // namespace heddle
