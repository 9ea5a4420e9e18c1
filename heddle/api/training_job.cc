#include "heddle/api/training_job.h"

#include <ATen/Context.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <numeric>

#include "heddle/api/rank_work.h"
#include "heddle/core/base/choice.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/run/train/device.h"
#include "heddle/run/train/resume.h"
#include "heddle/run/verify/first_node.h"

namespace heddle {

// --- Preparing

Status TrainingJob::CheckOptions() {
  HEDDLE_RETURN_IF_ERROR(options_.optimization.Check());
  HEDDLE_RETURN_IF_ERROR(options_.parallel.CheckPlanIsFile());
  HEDDLE_TRY(reducer_, options_.optimization.MakeReducer(processes_.has_value(), device_.type()));
  if (options_.loop.folder.empty() && options_.loop.load_step)
    return Error(Diag::kUsage, "--checkpoint.load_step requires --checkpoint.folder");
  return Done{};
}

Status TrainingJob::Prepare(std::optional<int64_t> processes, std::optional<int64_t> local_rank) {
  processes_ = processes;
  local_rank_ = local_rank;
  HEDDLE_TRY(device_, options_.model.Open(local_rank.value_or(0)));
  std::string note = options_.model.DeviceNote(at::hasCUDA());
  if (local_rank.value_or(0) == 0 && !note.empty()) observer_.Note(note);
  HEDDLE_RETURN_IF_ERROR(CheckOptions());
  kernels_ =
      options_.optimization.OwnKernels(device_, [this](const std::string& line) { Say(line); });
  const LoopOptions& job = options_.loop;
  HEDDLE_TRY(save_async_, ChooseBool("--checkpoint.async", job.async));
  HEDDLE_TRY(profile_, job.MakeProfile(local_rank.value_or(0), device_));
  HEDDLE_RETURN_IF_ERROR(FindPeak());
  HEDDLE_TRY(schedule_, job.MakeSchedule(options_.optimization.steps, options_.optimization.lr));
  trainer_.steps = options_.optimization.steps;
  trainer_.lr = [this](int64_t step) { return schedule_->At(step); };
  HEDDLE_TRY(trainer_.not_finite, job.OnNotFinite());
  HEDDLE_TRY(trainer_.spike, job.OnSpike());
  trainer_.spike_factor = job.spike_factor;
  trainer_.validation_interval = job.validation_interval;
  trainer_.validation_steps = job.validation_steps;
  trainer_.save_interval = job.save_interval;
  HEDDLE_RETURN_IF_ERROR(CompileAll());
  if (processes.value_or(0) > 0)
    HEDDLE_RETURN_IF_ERROR(CheckProcesses(*processes, planned_->layout.mesh));
  run::Model& model = planned_->model;
  auto seed = static_cast<uint64_t>(options_.optimization.seed);
  HEDDLE_TRY(params_, options_.model.Params(model, seed));
  HEDDLE_TRY(dataset_, job.OpenDataset(model, accumulated_ * model.batch.batch, seed));
  if (job.validation_interval > 0)
    trainer_.validation_batches =
        BatchesOf(*dataset_, run::DataSplit::kHeldOut, model.batch.seq_len);
  return CheckMemory();
}

Status TrainingJob::FindPeak() {
  if (options_.loop.cluster.empty()) {
    cluster_ = price::ClusterOfDevice(run::NameOf(device_));
  } else {
    HEDDLE_TRY(cluster_, price::LoadCluster(options_.loop.cluster));
  }
  return Done{};
}

Status TrainingJob::CompileAll() {
  HEDDLE_TRY(run::OptimizerOptions optimizer, options_.optimization.Optimizer());
  StepGraphOptions graphs{options_.model, options_.parallel, options_.compile, optimizer};
  graphs.global_batch = options_.loop.global_batch_size;
  graphs.validates = options_.loop.validation_interval > 0;
  graphs.metrics = true;
  graphs.measure = true;
  graphs.on_compiled = [this](const compile::CompileReport& report) { observer_.Compiled(report); };
  HEDDLE_TRY(CompiledStep compiled, CompileStep(graphs));
  accumulated_ = compiled.planned.micro_batches();
  report_ = std::move(compiled.report);
  compiled_plan_ = std::move(compiled.plan);
  planned_ = std::move(compiled.planned);
  step_ = std::move(compiled.graphs.step);
  first_ = std::move(compiled.graphs.first);
  more_ = std::move(compiled.graphs.more);
  forward_ = std::move(compiled.graphs.forward);
  return Done{};
}

Status TrainingJob::Join(run::Peers& peers) {
  peers_ = &peers;
  std::string graphs = heddle::Print(step_);
  for (const std::optional<Module>* other : {&first_, &more_, &forward_}) {
    if (*other) graphs += heddle::Print(**other);
  }
  return AgreeOnJob(peers, options_.values,
                    fmt::format("model {}\nmesh [{}]\nplan {:016x}\ngraphs {:016x}\ndata {}",
                                planned_->model.config.family->name, Format(step_.mesh),
                                Hash64(compile::FormatPlan(planned_->plan)), Hash64(graphs),
                                dataset_->Fingerprint()));
}

// --- Checkpoints

run::RunState TrainingJob::State() const {
  return {.config = planned_->model.config,
          .seed = options_.optimization.seed,
          .data = dataset_->Fingerprint(),
          .text = dataset_->IsText(),
          .largest_token = largest_token_,
          .settings = options_.settings};
}

Status TrainingJob::CheckResumed(const run::Checkpoint& checkpoint) {
  int64_t local = options_.model.local_batch_size;
  HEDDLE_TRY(std::vector<std::string> remarks,
             run::CheckSameRun(checkpoint, State(),
                               {.local = local, .ranks = planned_->model.batch.batch / local}));
  for (const std::string& remark : remarks) Say(remark);
  HEDDLE_RETURN_IF_ERROR(checkpoint.CheckTensors(run::TensorsToResume(planned_->model, step_)));
  HEDDLE_TRY(run::SavedRunState saved, run::ReadRunState(checkpoint));
  largest_token_ = saved.largest_token;
  if (checkpoint.step() <= options_.optimization.steps) return Done{};
  return Error(Diag::kCheckpoint, "{} has {}, --training.steps is {}", checkpoint.path(),
               Counted(checkpoint.step(), "step"), options_.optimization.steps);
}

// All ranks go on from the newest that all of them find whole.
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
                   {"graph.hd", heddle::Print(step_)},
                   {"step.plan", compile::FormatPlan(compiled_plan_)}};
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
  // Rank 0 clears the folder up. Nobody writes before that, and all hear if it cannot.
  Result<std::unique_ptr<run::CheckpointWriter>> opened = Failure{};
  if (speaks()) opened = run::CheckpointWriter::Open(options);
  std::string failed = speaks() && !opened.ok() ? opened.diagnostics()[0].message : "";
  HEDDLE_TRY(std::vector<std::string> all, peers_->Exchange(failed));
  if (speaks() && !opened.ok()) return Failure{opened.diagnostics()};
  if (!all[0].empty()) return Error(Diag::kCheckpoint, "rank 0 cannot save: {}", all[0]);
  if (!speaks()) opened = run::CheckpointWriter::Open(options);
  HEDDLE_TRY(writer_, std::move(opened));
  return Done{};
}

// Each rank checks a part of the data. If one finds a token outside of the vocabulary, all end.
Status TrainingJob::CheckTokens() {
  // The run that wrote the checkpoint has checked all of the same data.
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
    trainer_.save = [this](const run::Session& session) { return Save(session); };
  }
  int64_t after = resumed_ ? resumed_->step() : 0;
  if (resumed_) Say(fmt::format("going on from step {} ({})", after, resumed_->path()));
  HEDDLE_RETURN_IF_ERROR(CheckTokens());
  if (!speaks()) return Done{};
  return observer_.Begins(after);
}

// A save that fails does not end the run: the checkpoint before it stays.
Status TrainingJob::Save(const run::Session& session) {
  Status saved =
      writer_->Save(run::SnapshotOf(session, planned_->model, run::FormatRunState(State())));
  if (saved.ok() && !save_async_) saved = writer_->Finish();
  if (!saved.ok())
    Say(fmt::format(
        "warning: no checkpoint was written: {}; training goes on, the one before stays",
        saved.diagnostics()[0].message));
  return Done{};
}

// --- Training

run::StepModules TrainingJob::Modules() const {
  return {.step = &step_,
          .first = first_ ? &*first_ : nullptr,
          .more = more_ ? &*more_ : nullptr,
          .forward = forward_ ? &*forward_ : nullptr};
}

Result<std::unique_ptr<run::Session>> TrainingJob::MakeSession(StateHash* hash) const {
  run::SessionOptions options;
  options.world = {
      .device = device_, .reducer = reducer_, .threads = options_.optimization.threads};
  if (peers_ != nullptr)
    options.world_of = [this](const Module& module) { return OwnRank(*peers_, module, device_); };
  if (kernels_)
    options.kernels = [this](const Graph& graph) { return run::ArrangeKernels(graph, *kernels_); };
  options.recorder = options_.optimization.Recorder(device_);
  options.notice = [this](const std::string& line) { Say(line); };
  options.params = params_;
  options.batches = BatchesOf(*dataset_, run::DataSplit::kTrain, planned_->model.batch.seq_len);
  options.accumulated = accumulated_;
  options.count_ignored = options_.model.loss_divisor == "all_tokens";
  if (resumed_) options.saved = run::StateOf(*resumed_, planned_->model);
  if (hash != nullptr) {
    options.params = hash->Adding(std::move(options.params));
    if (options.saved) options.saved = hash->Adding(*std::move(options.saved));
    for (const auto& [name, buffer] : planned_->model.state) hash->Add(buffer);
  }
  HEDDLE_TRY(run::Session session, run::Session::Make(planned_->model, Modules(), options));
  return std::make_unique<run::Session>(std::move(session));
}

// Ranks may read the same path on machines with other files.
Result<std::unique_ptr<run::Session>> TrainingJob::MakeFirstSession() const {
  if (peers_ == nullptr) return MakeSession();
  StateHash hash;
  HEDDLE_TRY(std::unique_ptr<run::Session> session, MakeSession(&hash));
  const std::string& path = options_.model.load_path;
  HEDDLE_RETURN_IF_ERROR(hash.Agree(*peers_, resumed_       ? resumed_->path()
                                             : path.empty() ? "--debug.seed"
                                                            : path));
  return session;
}

// A rank that is asked to end tells the others to end after the next step. None of them can be
// further, because this rank takes part in every step.
Result<bool> TrainingJob::Stops(int64_t step) {
  bool asked = signals_->came() != 0;
  if (peers_ == nullptr) return asked;
  if (asked) HEDDLE_RETURN_IF_ERROR(peers_->Announce("stop", std::to_string(step + 1)));
  HEDDLE_TRY(std::optional<std::string> at, peers_->Announced("stop"));
  return at && step >= std::stoll(*at);
}

namespace {

std::vector<run::ExpertLoad> ExpertLoads(const run::Session& session) {
  std::vector<run::ExpertLoad> loads;
  for (const run::StepMetric& metric : session.metrics()) {
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

Status TrainingJob::Report(const run::Session& session, const run::TrainedStep& row) {
  if (row.skipped)
    Say(fmt::format("step {}: the loss is {}; the step is taken back", row.step, row.loss));
  if (!speaks()) return Done{};
  const run::Model& model = planned_->model;
  run::StepMetrics metrics{.step = row.step,
                           .loss = row.loss,
                           .grad_norm = row.grad_norm.value_or(0),
                           .lr = row.lr,
                           .seconds = row.seconds,
                           .data_seconds = session.data_seconds(),
                           .validation_loss = row.validation_loss};
  double share = row.seconds * static_cast<double>(ranks());
  metrics.tps = static_cast<double>(accumulated_ * model.batch.batch * model.batch.seq_len) / share;
  metrics.tflops = static_cast<double>(report_.whole_work[0].value) *
                   static_cast<double>(accumulated_) / share * 1e-12;
  if (cluster_)
    metrics.mfu = metrics.tflops * 1e3 / cluster_->device.PeakOf(model.numerics.compute).per_nano;
  if (std::optional<Bytes> peak = run::PeakMemory(device_)) metrics.memory = *peak;
  if (std::optional<Bytes> total = run::ReadMemory(device_).total)
    metrics.memory_share =
        static_cast<double>(metrics.memory.value) / static_cast<double>(total->value);
  metrics.experts = ExpertLoads(session);
  observer_.Trained(metrics);
  return Done{};
}

Result<TrainResult> TrainingJob::Train() {
  signals_.emplace();
  trainer_.stop = [this](int64_t step) { return Stops(step); };
  trainer_.on_trained = [this](const run::Session& session) -> Status {
    if (profile_) HEDDLE_RETURN_IF_ERROR(profile_->After(session.steps()));
    return hashes_.Add(options_.optimization, session, planned_->model, peers_);
  };
  trainer_.on_step = [this](const run::Session& session, const run::TrainedStep& row) {
    return Report(session, row);
  };
  HEDDLE_TRY(std::unique_ptr<run::Session> session, MakeFirstSession());
  if (session->steps() >= options_.optimization.steps) {
    Say(fmt::format("all {} are trained already", Counted(options_.optimization.steps, "step")));
    return TrainResult{.step = session->steps()};
  }
  if (profile_) HEDDLE_RETURN_IF_ERROR(profile_->After(session->steps()));
  HEDDLE_TRY(run::TrainingOutcome outcome, heddle::run::Train(*session, trainer_));
  if (profile_) {
    HEDDLE_RETURN_IF_ERROR(profile_->After(session->steps(), /*last=*/true));
    Say(profile_->path().empty()
            ? fmt::format("--profile={}: no such step was trained", options_.loop.profile)
            : "profile in " + profile_->path());
  }
  session.reset();
  return End(outcome);
}

Result<TrainResult> TrainingJob::End(const run::TrainingOutcome& outcome) {
  if (speaks()) observer_.Ended();
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
      Say(fmt::format("stopped behind step {}, as {} asks", outcome.last.step,
                      signals_->came() != 0 ? ::strsignal(signals_->came()) : "another rank"));
      break;
    case run::TrainingEnd::kNotFinite:
      HEDDLE_RETURN_IF_ERROR(ExplainNotFinite(outcome.last));
      break;
    case run::TrainingEnd::kSpike:
      Say(
          fmt::format("stopped: the loss of step {} is {}, more than {} times the mean of those "
                      "before it",
                      outcome.last.step, outcome.last.loss, options_.loop.spike_factor));
      break;
    case run::TrainingEnd::kFinished: break;
  }
  return result;
}

// Trains again from where the run began, and looks at every value.
Status TrainingJob::ExplainNotFinite(const run::TrainedStep& row) {
  Say(fmt::format("stopped: the loss of step {} is {}; looking for the node that made it", row.step,
                  row.loss));
  HEDDLE_TRY(std::unique_ptr<run::Session> session, MakeSession());
  HEDDLE_TRY(std::optional<run::NodeFinding> finding,
             run::FirstNotFinite(*session, trainer_.lr, row.step));
  if (peers_ != nullptr) {
    HEDDLE_TRY(finding, ShareOrigin(*peers_)(std::move(finding)));
  }
  if (finding)
    Say(fmt::format("step {}, rank {}: {}\n  {}", finding->step, finding->rank, finding->what,
                    finding->node));
  return Done{};
}

void TrainingJob::Say(const std::string& line) const {
  if (speaks()) observer_.Note(line);
}

}  // namespace heddle
