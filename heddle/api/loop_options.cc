#include "heddle/api/loop_options.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>

namespace heddle {

Result<std::unique_ptr<run::StepProfile>> LoopOptions::MakeProfile(c10::Device device) const {
  if (profile.empty()) {
    if (!profile_dir.empty()) return Error(Diag::kUsage, "--profile-dir requires --profile");
    return std::unique_ptr<run::StepProfile>();
  }
  HEDDLE_TRY(run::ProfiledSteps steps, run::ParseProfiledSteps(profile));
  if (profile_dir.empty() && folder.empty())
    return Error(Diag::kUsage, "--profile requires --profile-dir or --checkpoint.folder");
  std::string to = profile_dir.empty() ? folder + "/profile" : profile_dir;
  return std::make_unique<run::StepProfile>(steps, std::move(to), device);
}

Result<run::Schedule> LoopOptions::MakeSchedule(int64_t steps, double lr) const {
  run::ScheduleOptions options{.steps = steps,
                               .lr = lr,
                               .warmup_steps = warmup_steps,
                               .decay = decay,
                               .decay_ratio = decay_ratio,
                               .min_lr_factor = min_lr_factor};
  return run::Schedule::Make(options);
}

Result<std::unique_ptr<run::Dataset>> LoopOptions::OpenDataset(const run::Model& model,
                                                               int64_t global_batch,
                                                               uint64_t seed) const {
  run::DatasetOptions options;
  options.source = dataset;
  options.tokenizer = tokenizer;
  options.vocab = model.config.vocab_size;
  options.seq_len = model.batch.seq_len;
  options.global_batch = global_batch;
  options.seed = seed;
  options.shuffle = shuffle;
  options.document_boundaries = document_boundaries || model.batch.documents;
  options.document_end = document_end;
  if (validation_interval > 0) options.held_out = 0.05;
  HEDDLE_TRY(std::unique_ptr<run::Dataset> opened, run::Dataset::Open(options));
  if (validation_interval > 0 && !opened->Has(run::DataSplit::kHeldOut))
    return Error(Diag::kBadChoice,
                 "--validation.interval is {}, but {} has too little data to hold out",
                 validation_interval, dataset);
  return opened;
}

run::BatchSource BatchesOf(const run::Dataset& dataset, run::DataSplit split, int64_t seq_len) {
  return [&dataset, split, seq_len](int64_t step, int64_t first_row,
                                    int64_t rows) -> Result<run::Batch> {
    run::Batch batch{at::empty({rows, seq_len}, at::kLong), at::empty({rows, seq_len}, at::kLong)};
    auto cells = [](const at::Tensor& t) {
      return std::span(t.mutable_data_ptr<int64_t>(), static_cast<size_t>(t.numel()));
    };
    HEDDLE_RETURN_IF_ERROR(
        dataset.Read(split, step, first_row, rows, cells(batch.tokens), cells(batch.labels)));
    batch.ends = at::eq(batch.labels, run::kDocumentEndLabel);
    batch.labels.masked_fill_(batch.ends, run::kIgnoredLabel);
    return batch;
  };
}

}  // namespace heddle
