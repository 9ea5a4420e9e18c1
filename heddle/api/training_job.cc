#include "heddle/api/training_job.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <numeric>

#include "heddle/api/rank_work.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/run/train/device.h"
#include "heddle/run/train/resume.h"
#include "heddle/run/verify/first_node.h"

namespace heddle {

// --- Preparation

Status TrainingJob::Prepare(std::optional<int64_t> processes, std::optional<int64_t> local_rank) {
  HEDDLE_RETURN_IF_ERROR(OpenDevice(processes, local_rank));
  const LoopOptions& loop = options_.loop;
  if (loop.folder.empty() && loop.load_step)
    return Error(Diag::kUsage, "--checkpoint.load_step requires --checkpoint.folder");
  HEDDLE_TRY(profile_, loop.MakeProfile(device_));
  HEDDLE_RETURN_IF_ERROR(FindPeak());
  trainer_.steps = options_.optimization.steps;
  trainer_.lr = [this](int64_t step) { return schedule_->At(step); };
  trainer_.not_finite = loop.on_nan;
  trainer_.spike = loop.on_spike;
  trainer_.spike_factor = loop.spike_factor;
  trainer_.validation_interval = loop.validation_interval;
  trainer_.validation_steps = loop.validation_steps;
  trainer_.save_interval = loop.save_interval;
  HEDDLE_RETURN_IF_ERROR(CompileGraphs(/*for_training=*/true));
  HEDDLE_RETURN_IF_ERROR(OpenInputs());
  if (loop.validation_interval > 0)
    trainer_.validation_batches =
        BatchesOf(*dataset_, run::DataSplit::kHeldOut, model().batch.seq_len);
  HEDDLE_RETURN_IF_ERROR(MakeSampler());
  return CheckMemory();
}

Status TrainingJob::MakeSampler() {
  const LoopOptions& loop = options_.loop;
  if (loop.sample_every == 0) return Done{};
  if (processes_ && ranks() > 1)
    return Error(
        Diag::kUsage,
        "--metrics.sample_every works with all ranks in one process yet, but this job has "
        "a process for each of {} ranks; drop it, and use heddle generate with checkpoints",
        ranks());
  ModelOptions options = options_.model;
  options.local_batch_size = 1;
  options.device = run::Target::kCpu;
  options.attention = run::AttentionKind::kFastest;
  options.document_attention = false;
  HEDDLE_TRY(run::Model model, options.MakeWith(this->model().config));
  HEDDLE_TRY(run::TextCoder coder,
             run::TextCoder::Open(dataset_->IsText(),
                                  run::FindTokenizer(loop.tokenizer, options_.model.load_path),
                                  model.config.vocab_size));
  run::SamplerOptions sampled{.prompts = loop.sample_prompts, .tokens = loop.sample_tokens};
  if (sampled.prompts.empty()) sampled.prompts = {"\n"};
  HEDDLE_TRY(sampler_, run::Sampler::Make(std::move(model), std::move(coder), sampled,
                                          "--metrics.sample_prompt"));
  return Done{};
}

Status TrainingJob::FindPeak() {
  if (options_.loop.cluster.empty()) {
    cluster_ = price::ClusterOfDevice(run::NameOf(device_));
  } else {
    HEDDLE_TRY(cluster_, price::LoadCluster(options_.loop.cluster));
  }
  return Done{};
}

// --- Checkpoints

run::RunState TrainingJob::State() const {
  return {.config = model().config,
          .seed = options_.optimization.seed,
          .data = dataset_->Fingerprint(),
          .text = dataset_->IsText(),
          .largest_token = largest_token_,
          .settings = options_.settings};
}

Status TrainingJob::CheckResumed(const run::Checkpoint& checkpoint) {
  const int64_t batch_ranks = planned().layout.batch_ranks;
  const int64_t pass = model().batch.batch * planned().pipeline_micro_batches();
  HEDDLE_TRY(
      std::vector<std::string> remarks,
      run::CheckSameRun(checkpoint, State(),
                        {.local = std::max<int64_t>(pass / batch_ranks, 1), .ranks = batch_ranks}));
  for (const std::string& remark : remarks) Say(remark);
  HEDDLE_RETURN_IF_ERROR(checkpoint.CheckTensors(run::TensorsToResume(model(), graphs().step)));
  HEDDLE_TRY(run::SavedRunState saved, run::ReadRunState(checkpoint));
  largest_token_ = saved.largest_token;
  if (checkpoint.step() <= options_.optimization.steps) return Done{};
  return Error(Diag::kCheckpoint, "{} has {}, but --training.steps is {}", checkpoint.path(),
               Counted(checkpoint.step(), "step"), options_.optimization.steps);
}

// All ranks resume from the newest checkpoint that is complete for all of them.
Status TrainingJob::FindCheckpoint() {
  run::OpenCheckpointOptions options;
  options.step = options_.loop.load_step;
  if (peers_ != nullptr) {
    options.part = peers_->rank();
    options.parts = peers_->world_size();
  }
  while (true) {
    HEDDLE_TRY(resumed_, run::OpenCheckpoint(options_.loop.folder, options));
    if (peers_ == nullptr) break;
    int64_t own = resumed_ ? resumed_->step() : -1;
    HEDDLE_TRY(std::vector<std::string> all, peers_->Exchange(std::to_string(own)));
    int64_t least = own;
    bool same = true;
    for (const std::string& text : all) {
      int64_t step = std::stoll(text);
      same = same && step == own;
      least = std::min(least, step);
    }
    if (same) break;
    options.newest = least;
  }
  if (!resumed_) return Done{};
  for (const std::string& note : resumed_->notes()) Say(note);
  return CheckResumed(*resumed_);
}

Status TrainingJob::OpenWriter() {
  run::CheckpointWriterOptions options;
  options.folder = options_.loop.folder;
  options.world = ranks();
  options.keep = options_.loop.keep;
  options.begin_step = resumed_ ? resumed_->step() : 0;
  options.ranks.resize(static_cast<size_t>(ranks()));
  std::iota(options.ranks.begin(), options.ranks.end(), 0);
  options.texts = {{"job.toml", options_.job_file},
                   {"graph.hd", heddle::Print(graphs().step)},
                   {"step.plan", compile::FormatPlan(plan())}};
  if (peers_ == nullptr) {
    HEDDLE_TRY(writer_, run::CheckpointWriter::Open(std::move(options)));
    return Done{};
  }
  options.ranks = {peers_->rank()};
  options.timeout = 5 * peers_->timeout();
  auto now = std::chrono::system_clock::now().time_since_epoch().count();
  HEDDLE_TRY(std::vector<std::string> words,
             peers_->Exchange(fmt::format("{:x}-{:x}", now, ::getpid())));
  options.run = words[0];
  // Rank 0 removes partial folders first. The other ranks wait, and stop if that fails.
  Result<std::unique_ptr<run::CheckpointWriter>> opened = Failure{};
  if (leads()) opened = run::CheckpointWriter::Open(options);
  std::string failed = leads() && !opened.ok() ? opened.diagnostics()[0].message : "";
  HEDDLE_TRY(std::vector<std::string> all, peers_->Exchange(failed));
  if (leads() && !opened.ok()) return Failure{opened.diagnostics()};
  if (!all[0].empty()) return Error(Diag::kCheckpoint, "rank 0 cannot save: {}", all[0]);
  if (!leads()) opened = run::CheckpointWriter::Open(options);
  HEDDLE_TRY(writer_, std::move(opened));
  return Done{};
}

// Each rank checks a part of the data. If one finds a token outside the vocabulary, all stop.
Status TrainingJob::CheckTokens() {
  // The run that wrote the checkpoint has checked the same data.
  if (largest_token_) return Done{};
  run::TokenCheck check;
  check.first_step = resumed_ ? resumed_->step() + 1 : 1;
  check.last_step = options_.optimization.steps;
  check.progress = [this](const std::string& line) { Say(line); };
  if (peers_ != nullptr) {
    check.part = peers_->rank();
    check.parts = peers_->world_size();
  }
  Result<std::optional<int64_t>> largest = dataset_->CheckTokens(check);
  if (peers_ == nullptr) {
    HEDDLE_TRY(largest_token_, std::move(largest));
    return Done{};
  }
  std::string own = !largest.ok() ? "!" + largest.diagnostics()[0].message
                    : *largest    ? std::to_string(**largest)
                                  : "";
  HEDDLE_TRY(std::vector<std::string> all, peers_->Exchange(own));
  for (const std::string& found : all) {
    if (found.starts_with('!')) return Error(Diag::kData, "{}", found.substr(1));
    if (!found.empty())
      largest_token_ =
          std::max(largest_token_.value_or(0), static_cast<int64_t>(std::stoll(found)));
  }
  return Done{};
}

Status TrainingJob::Open() {
  if (!options_.loop.folder.empty()) {
    HEDDLE_RETURN_IF_ERROR(FindCheckpoint());
    HEDDLE_RETURN_IF_ERROR(OpenWriter());
    trainer_.save = [this](const run::GraphRun& run) { return Save(run); };
  }
  int64_t after = resumed_ ? resumed_->step() : 0;
  if (resumed_) Say(fmt::format("resuming after step {} ({})", after, resumed_->path()));
  HEDDLE_RETURN_IF_ERROR(CheckTokens());
  if (!leads()) return Done{};
  return watcher_.Begins(after);
}

// A failed save does not end the run: the previous checkpoint remains.
Status TrainingJob::Save(const run::GraphRun& run) {
  Status saved = writer_->Save(run::SnapshotOf(run, model(), run::FormatRunState(State())));
  if (saved.ok() && !options_.loop.async) saved = writer_->Finish();
  if (!saved.ok())
    Say(
        fmt::format("warning: no checkpoint was written: {}; training continues, and the previous "
                    "checkpoint remains",
                    saved.diagnostics()[0].message));
  return Done{};
}

// --- Training

Result<std::unique_ptr<run::GraphRun>> TrainingJob::MakeRun(StateHash* hash) const {
  run::SessionOptions options = OptionsOfSession();
  if (resumed_) options.saved = run::StateOf(*resumed_, model());
  if (hash != nullptr) {
    options.params = hash->Adding(std::move(options.params));
    if (options.saved) options.saved = hash->Adding(*std::move(options.saved));
    for (const auto& [name, buffer] : model().state) hash->Add(buffer);
  }
  return MakeGraphRun(graphs(), options);
}

// Ranks may read the same path on machines with different files.
Result<std::unique_ptr<run::GraphRun>> TrainingJob::MakeFirstRun() const {
  if (peers_ == nullptr) return MakeRun();
  StateHash hash;
  HEDDLE_TRY(std::unique_ptr<run::GraphRun> run, MakeRun(&hash));
  const std::string& path = options_.model.load_path;
  std::optional<AxisId> axis = ProgramAxis(graphs().step);
  HEDDLE_RETURN_IF_ERROR(
      hash.Agree(*peers_,
                 resumed_       ? resumed_->path()
                 : path.empty() ? "--debug.seed"
                                : path,
                 axis ? graphs().step.mesh.Coordinate(peers_->rank(), *axis) : 0));
  return run;
}

// A rank that is asked to stop tells the others to stop after the next step. None of them can be
// further, because this rank takes part in every step.
Result<bool> TrainingJob::Stops(int64_t step) {
  bool asked = signals_->came() != 0;
  if (peers_ == nullptr) return asked;
  if (asked) HEDDLE_RETURN_IF_ERROR(peers_->Announce("stop", std::to_string(step + 1)));
  HEDDLE_TRY(std::optional<std::string> at, peers_->Announced("stop"));
  return at && step >= std::stoll(*at);
}

namespace {

std::vector<run::ExpertLoad> ExpertLoads(const run::GraphRun& run) {
  std::vector<run::ExpertLoad> loads;
  for (const run::StepMetric& metric : run.metrics()) {
    if (!metric.name.ends_with(run::kExpertCounts)) continue;
    run::ExpertLoad load;
    load.layer = metric.name.substr(0, metric.name.size() - run::kExpertCounts.size());
    at::Tensor counts = metric.value.to(at::kCPU).contiguous();
    load.tokens.assign(counts.const_data_ptr<int64_t>(),
                       counts.const_data_ptr<int64_t>() + counts.numel());
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace

Status TrainingJob::Report(const run::GraphRun& run, const run::TrainedStep& row) {
  if (row.skipped)
    Say(fmt::format("step {}: the loss is {}; the step is skipped", row.step, row.loss));
  if (!leads()) return Done{};
  const run::Model& model = this->model();
  run::StepMetrics metrics{.step = row.step,
                           .loss = row.loss,
                           .grad_norm = row.grad_norm.value_or(0),
                           .lr = row.lr,
                           .seconds = row.seconds,
                           .data_seconds = row.data_seconds,
                           .validation_loss = row.validation_loss,
                           .is_cross_entropy = options_.model.LossIsCrossEntropy()};
  double share = row.seconds * static_cast<double>(ranks());
  int64_t rows = planned().sequences();
  metrics.tps = static_cast<double>(rows * model.batch.seq_len) / share;
  metrics.tflops = static_cast<double>(report().whole_work[0].value) *
                   static_cast<double>(rows / model.batch.batch) / share * 1e-12;
  if (cluster_)
    metrics.mfu = metrics.tflops * 1e3 / cluster_->device.PeakOf(model.numerics.compute).per_nano;
  if (std::optional<Bytes> peak = run::PeakMemory(device_)) metrics.memory = *peak;
  if (std::optional<Bytes> total = run::ReadMemory(device_).total)
    metrics.memory_share =
        static_cast<double>(metrics.memory.value) / static_cast<double>(total->value);
  metrics.experts = ExpertLoads(run);
  if (IsSampled(row.step)) metrics.samples = Sample(run);
  watcher_.Trained(metrics);
  return Done{};
}

// Training does not depend on it, so it continues without it.
std::vector<run::TextSample> TrainingJob::Sample(const run::GraphRun& run) {
  std::vector<run::TextSample> samples;
  Result<std::vector<std::string>> texts = sampler_->Continue(run, model());
  if (!texts.ok()) {
    Say(fmt::format("warning: no text was generated: {}; training continues",
                    texts.diagnostics()[0].message));
    return samples;
  }
  for (size_t i = 0; i < texts->size(); ++i)
    samples.push_back({sampler_->prompts()[i], std::move((*texts)[i])});
  return samples;
}

// All ranks take part: traces name the run that they are of.
Status TrainingJob::BeginProfile(const run::GraphRun& run) {
  run::ProfiledRank rank;
  auto now = std::chrono::system_clock::now().time_since_epoch().count();
  rank.run = fmt::format("{:x}-{:x}", now, ::getpid());
  // The allocator of a GPU counts all allocations, the one of the host those during the trace.
  if (device_.is_cpu()) rank.held = StateHere();
  if (peers_ != nullptr) {
    rank.rank = peers_->rank();
    rank.world_size = peers_->world_size();
    HEDDLE_TRY(std::vector<std::string> all, peers_->Exchange(rank.run));
    rank.run = all[0];
  }
  profile_->SetRank(std::move(rank));
  return profile_->After(run.steps());
}

Result<TrainResult> TrainingJob::Train() {
  signals_.emplace();
  trainer_.stop = [this](int64_t step) { return Stops(step); };
  trainer_.runs_ahead = [this](int64_t step) {
    return options_.optimization.hashes.empty() && !(profile_ && profile_->is_edge(step)) &&
           !IsSampled(step);
  };
  trainer_.on_trained = [this](const run::GraphRun& run) -> Status {
    if (profile_) HEDDLE_RETURN_IF_ERROR(profile_->After(run.steps()));
    return hashes_.Add(options_.optimization, run, model(), peers_);
  };
  trainer_.on_step = [this](const run::GraphRun& run, const run::TrainedStep& row) {
    return Report(run, row);
  };
  HEDDLE_TRY(std::unique_ptr<run::GraphRun> run, MakeFirstRun());
  if (run->steps() >= options_.optimization.steps) {
    Say(fmt::format("all {} are trained already", Counted(options_.optimization.steps, "step")));
    return TrainResult{.step = run->steps()};
  }
  if (profile_) HEDDLE_RETURN_IF_ERROR(BeginProfile(*run));
  HEDDLE_TRY(run::TrainingOutcome outcome, heddle::run::Train(*run, trainer_));
  if (profile_) {
    HEDDLE_RETURN_IF_ERROR(profile_->After(run->steps(), /*last=*/true));
    Say(profile_->path().empty()
            ? fmt::format("--profile={}: no such step was trained", options_.loop.profile)
            : "profile in " + profile_->path());
    if (leads() && !profile_->path().empty()) watcher_.Profiled(*this, profile_->path());
  }
  run.reset();
  return End(outcome);
}

Result<TrainResult> TrainingJob::End(const run::TrainingOutcome& outcome) {
  if (leads()) watcher_.Ended();
  HEDDLE_RETURN_IF_ERROR(hashes_.Write(options_.optimization, peers_));
  TrainResult result{.end = outcome.end, .step = outcome.last.step};
  if (writer_) {
    Status finished = writer_->Finish();
    result.saved = finished.ok();
    if (!result.saved)
      Say(fmt::format("error: the last checkpoint was not written: {}",
                      finished.diagnostics()[0].message));
    if (result.saved && writer_->last())
      Say(fmt::format("saved step {} in {}", writer_->last()->step, options_.loop.folder));
  }
  switch (outcome.end) {
    case run::TrainingEnd::kStopped:
      Say(fmt::format("stopped after step {} ({})", outcome.last.step,
                      signals_->came() != 0 ? ::strsignal(signals_->came()) : "another rank"));
      break;
    case run::TrainingEnd::kNotFinite:
      HEDDLE_RETURN_IF_ERROR(ExplainNotFinite(outcome.last));
      break;
    case run::TrainingEnd::kSpike:
      Say(fmt::format(
          "stopped: the loss of step {} is {}, more than {} times the mean of the losses "
          "before it",
          outcome.last.step, outcome.last.loss, options_.loop.spike_factor));
      break;
    case run::TrainingEnd::kFinished: break;
  }
  return result;
}

// Repeats the run from its start, and inspects every value.
Status TrainingJob::ExplainNotFinite(const run::TrainedStep& row) {
  Say(fmt::format("stopped: the loss of step {} is {}; looking for the node that computed it",
                  row.step, row.loss));
  HEDDLE_TRY(std::unique_ptr<run::GraphRun> run, MakeRun());
  HEDDLE_TRY(std::optional<run::NodeFinding> finding,
             run::FirstNotFinite(*run, trainer_.lr, row.step));
  if (peers_ != nullptr) {
    HEDDLE_TRY(finding, ShareOrigin(*peers_)(std::move(finding)));
  }
  if (finding)
    Say(fmt::format("step {}, rank {}: {}\n  {}", finding->step, finding->rank, finding->what,
                    finding->node));
  return Done{};
}

}  // namespace heddle
