#include "heddle/cli/torch/train/job_flags.h"

#include "heddle/price/cost/cluster/cluster.h"

namespace heddle {

void JobFlags::DeclareSteps(Flags& flags) {
  flags.Section("Data");
  flags.Option(
      "--training.dataset", dataset,
      "training data: text (Heddle's own sources), synthetic (random tokens), or a file or "
      "folder (docs/data.md)");
  flags.Option("--training.global_batch_size", global_batch_size,
               "sequences per step over all ranks; larger than one batch: accumulate gradients (0: "
               "one batch)",
               {.least = 0});
  flags.Option("--training.shuffle", shuffle,
               "true or false: read sequences in an order drawn from the seed");
  flags.Switch("--training.document_boundaries", document_boundaries,
               "do not predict across document boundaries");
  flags.Option("--training.document_end", document_end,
               "token that ends a document, if the files do not state it");
  flags.Section("Learning rate");
  flags.Option("--lr_scheduler.warmup_steps", warmup_steps,
               "steps in which the learning rate rises from 0", {.least = 0});
  flags.Option("--lr_scheduler.decay", decay, "decay curve: none, linear, cosine or sqrt");
  flags.Option("--lr_scheduler.decay_ratio", decay_ratio,
               "fraction of steps, the last ones, in which the rate decays (1: all after warm-up)");
  flags.Option("--lr_scheduler.min_lr_factor", min_lr_factor,
               "final rate, as a fraction of --optimizer.lr");
  flags.Section("Validation");
  flags.Option("--validation.interval", validation_interval,
               "evaluate held-out data every N steps; 0: never", {.least = 0});
  flags.Option("--validation.steps", validation_steps, "batches of held-out data", {.least = 1});
  flags.Path("--training.dataset",
             [](std::string_view value) { return value != "text" && value != "synthetic"; });
}

void JobFlags::Declare(Flags& flags) {
  DeclareSteps(flags);
  flags.Switch("--validation.enable", validate,
               "false: do not validate, even with --validation.interval");
  flags.Section("Checkpoints");
  flags.Switch("--checkpoint.enable", save_checkpoints,
               "false: save no checkpoints, even with --checkpoint.folder");
  flags.Option("--checkpoint.folder=FOLDER", folder,
               "folder for checkpoints; a run resumes from the newest one in it (default: save "
               "none)");
  flags.Option("--checkpoint.interval", save_interval,
               "save every N steps and after the last; 0: only after the last", {.least = 0});
  flags.Option("--checkpoint.keep", keep, "number of newest checkpoints to keep; 0: all",
               {.least = 0});
  flags.Option("--checkpoint.async", async,
               "true or false: continue training while files are written");
  flags.Option("--checkpoint.load_step", load_step, "resume from this step instead of the newest");
  flags.Section("Metrics");
  flags.Option("--metrics.jsonl=FILE", jsonl, "file that gets one line of JSON per step");
  flags.Switch("--metrics.enable_tensorboard", write_events,
               "false: write no TensorBoard events, even with --metrics.tensorboard");
  flags.Option("--metrics.tensorboard=FOLDER", tensorboard, "folder for TensorBoard events");
  flags.Option(
      "--metrics.cluster", cluster,
      "cluster whose peak FLOP/s MFU is computed against: a name, or a JSON file (default: "
      "the one with this machine's GPU)");
  flags.Option("--metrics.log_freq", log_every, "print every N steps", {.least = 1});
  flags.Option("--profile", profile,
               "write a Chrome trace of COUNT steps, or of START:COUNT (COUNT alone starts after "
               "warm-up)");
  flags.Option("--profile-dir=FOLDER", profile_dir,
               "folder for traces (default: profile in --checkpoint.folder)");
  flags.Section("Faults");
  flags.Option("--fault.on_nan", on_nan,
               "action on a loss that is not finite: stop, or skip the step, which keeps a copy of "
               "the state");
  flags.Option("--fault.on_spike", on_spike,
               "action on a loss far above the last 20: ignore, stop, or skip the step");
  flags.Option("--fault.spike_factor", spike_factor,
               "multiple of the mean of the last 20 losses that counts as a spike");
  flags.Option("--fault.max_restarts", max_restarts,
               "with --nproc: restarts of a job that lost a rank", {.least = 0});
  flags.Finally([this] {
    if (!save_checkpoints) folder.clear();
    if (!validate) validation_interval = 0;
    if (!write_events) tensorboard.clear();
  });
  flags.Path("--checkpoint.folder");
  flags.Path("--metrics.jsonl");
  flags.Path("--metrics.tensorboard");
  flags.Path("--metrics.cluster", price::IsClusterPath);
}

}  // namespace heddle
