#include "heddle/cli/torch/train/training_job.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <numeric>

#include <nlohmann/json.hpp>

#include "heddle/base/hash.h"
#include "heddle/base/text.h"
#include "heddle/cli/choice.h"
#include "heddle/ir/text/print.h"
#include "heddle/train/device.h"
#include "heddle/train/resume.h"
#include "heddle/verify/first_node.h"

namespace heddle {

using OrderedJson = nlohmann::ordered_json;

void TrainingFlags::Declare(Flags& flags) {
  model.Declare(flags);
  parallel.Declare(flags);
  compile.Declare(flags);
  train.Declare(flags);
  job.Declare(flags);
  process.Declare(flags);
  flags.Config(text);
}

// --- Preparing

Status TrainingJob::CheckFlags(std::optional<int64_t> processes) {
  HEDDLE_RETURN_IF_ERROR(flags_.train.Check());
  HEDDLE_RETURN_IF_ERROR(flags_.parallel.CheckPlanIsFile());
  HEDDLE_RETURN_IF_ERROR(
      CheckOneOutput({{"the hashes", flags_.train.hashes == "-"}, {"the log", true}}));
  HEDDLE_TRY(reducer_, flags_.train.MakeReducer(processes.has_value(), device_.type()));
  if (flags_.job.folder.empty() && flags_.job.load_step)
    return Error(Diag::kUsage, "--checkpoint.load_step is given, and --checkpoint.folder is not");
  return Done{};
}

Status TrainingJob::Prepare(std::optional<int64_t> processes, int64_t local_rank) {
  HEDDLE_TRY(bool exact, ChooseBool("--debug.deterministic", flags_.job.deterministic));
  HEDDLE_TRY(device_, flags_.model.Open(local_rank, exact, streams_));
  HEDDLE_RETURN_IF_ERROR(CheckFlags(processes));
  const JobFlags& job = flags_.job;
  HEDDLE_RETURN_IF_ERROR(FindPeak());
  HEDDLE_TRY(schedule_, job.MakeSchedule(flags_.train.steps, flags_.train.lr));
  trainer_.steps = flags_.train.steps;
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
  Model& model = planned_->model;
  auto seed = static_cast<uint64_t>(flags_.train.seed);
  HEDDLE_TRY(params_, flags_.model.Params(model, seed));
  HEDDLE_TRY(dataset_, job.OpenDataset(model, accumulated_ * model.batch.batch, seed));
  if (job.validation_interval > 0)
    trainer_.validation_batches = BatchesOf(*dataset_, DataSplit::kHeldOut, model.batch.seq_len);
  return CheckMemory();
}

Status TrainingJob::FindPeak() {
  if (flags_.job.cluster.empty()) {
    cluster_ = ClusterOfDevice(NameOf(device_));
  } else {
    HEDDLE_TRY(cluster_, LoadCluster(flags_.job.cluster));
  }
  return Done{};
}

Result<Module> TrainingJob::Compiled(const CaptureOptions& capture, CompileReport* report) {
  HEDDLE_TRY(PlannedStep planned,
             PlanStep(flags_.model, flags_.parallel, streams_, capture,
                      accumulated_ > 1 ? LossDivisor::kGiven : std::optional<LossDivisor>()));
  HEDDLE_TRY(CompileOptions options,
             flags_.compile.Options(FormatPlan(planned.plan), /*want_text=*/false));
  options.notes = planned.layout.notes;
  options.manager.measure = report != nullptr;
  Module module = planned.module;
  HEDDLE_TRY(CompileReport compiled, Compile(module, options));
  if (report == nullptr) return module;
  flags_.compile.Print(compiled, streams_);
  *report = std::move(compiled);
  planned_ = std::move(planned);
  return module;
}

Status TrainingJob::CompileAll() {
  HEDDLE_TRY(ParallelFlags::Layout layout, LayoutFor(flags_.model, flags_.parallel, streams_));
  HEDDLE_TRY(accumulated_,
             flags_.job.Accumulated(flags_.model.local_batch_size * layout.batch_ranks));
  CaptureOptions step;
  HEDDLE_TRY(step.optimizer, flags_.train.Optimizer());
  step.accumulate = accumulated_ > 1;
  step.metrics = true;
  HEDDLE_TRY(step_, Compiled(step, &report_));
  summary_ = Summarize(step_, step_.graphs[0], report_.whole_work[0]);
  if (accumulated_ > 1) {
    HEDDLE_TRY(first_, Compiled({.metrics = true}, nullptr));
  }
  if (accumulated_ > 2) {
    CaptureOptions more;
    more.accumulate = true;
    more.metrics = true;
    HEDDLE_TRY(more_, Compiled(more, nullptr));
  }
  if (flags_.job.validation_interval > 0) {
    CaptureOptions forward;
    forward.forward_only = true;
    HEDDLE_TRY(forward_, Compiled(forward, nullptr));
  }
  return Done{};
}

Status TrainingJob::Join(Peers& peers) {
  peers_ = &peers;
  const auto& batch = planned_->model.batch;
  std::string job = fmt::format(
      "heddle {}, torch {}\nmodel {} {} in {}\nmesh [{}]\nbatch {} x {}, {} in a step\ngraph "
      "{:016x}\ndata {}\nsteps {}, lr {}, seed {}\ncheckpoints {}",
      Version(), HEDDLE_TORCH_VERSION, planned_->model.config.family->name,
      planned_->model.config.flavor, flags_.model.precision, Format(step_.mesh), batch.batch,
      batch.seq_len, accumulated_, Hash64(heddle::Print(step_)), dataset_->Fingerprint(),
      flags_.train.steps, flags_.train.lr, flags_.train.seed, flags_.job.folder);
  return peers.Agree("job", job);
}

// --- Checkpoints

std::string TrainingJob::State() const {
  const Model& model = planned_->model;
  OrderedJson state = {{"model", model.config.family->name},
                       {"flavor", model.config.flavor},
                       {"seed", flags_.train.seed},
                       {"data", dataset_->Fingerprint()},
                       {"text", dataset_->IsText()}};
  return state.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Status TrainingJob::CheckResumed(const Checkpoint& checkpoint) const {
  HEDDLE_RETURN_IF_ERROR(checkpoint.CheckTensors(TensorsToResume(planned_->model, step_)));
  OrderedJson then = OrderedJson::parse(checkpoint.state(), nullptr, /*allow_exceptions=*/false);
  OrderedJson now = OrderedJson::parse(State());
  for (const auto& [key, value] : now.items()) {
    if (then.is_object() && then.contains(key) && then[key] == value) continue;
    return Error(Diag::kCheckpoint,
                 "{0} was written with {1} {2}, this job has {1} {3}; it would not go on where it "
                 "was",
                 checkpoint.path(), key,
                 then.is_object() && then.contains(key) ? then[key].dump() : "none", value.dump());
  }
  if (checkpoint.step() <= flags_.train.steps) return Done{};
  return Error(Diag::kCheckpoint, "{} has {}, --training.steps is {}", checkpoint.path(),
               Counted(checkpoint.step(), "step"), flags_.train.steps);
}

// All ranks go on from the newest that all of them find whole.
Status TrainingJob::FindCheckpoint() {
  OpenCheckpointOptions options;
  options.step = flags_.job.load_step;
  if (peers_ != nullptr) {
    options.part = peers_->rank();
    options.parts = peers_->world_size();
  }
  while (true) {
    HEDDLE_TRY(resumed_, OpenCheckpoint(flags_.job.folder, options));
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
  CheckpointWriterOptions options;
  options.folder = flags_.job.folder;
  options.world = ranks();
  options.keep = flags_.job.keep;
  options.begin_step = resumed_ ? resumed_->step() : 0;
  options.ranks.resize(static_cast<size_t>(ranks()));
  std::iota(options.ranks.begin(), options.ranks.end(), 0);
  options.texts = {{"job.toml", flags_.text},
                   {"graph.hd", heddle::Print(step_)},
                   {"step.plan", FormatPlan(planned_->plan)}};
  if (peers_ == nullptr) {
    HEDDLE_TRY(writer_, CheckpointWriter::Open(std::move(options)));
    return Done{};
  }
  options.ranks = {peers_->rank()};
  options.timeout = 5 * peers_->timeout();
  auto now = std::chrono::system_clock::now().time_since_epoch().count();
  HEDDLE_TRY(std::vector<std::string> words,
             peers_->Exchange(fmt::format("{:x}-{:x}", now, ::getpid())));
  options.run = words[0];
  // Rank 0 clears the folder up. Nobody writes before that, and all hear if it cannot.
  Result<std::unique_ptr<CheckpointWriter>> opened = Failure{};
  if (speaks()) opened = CheckpointWriter::Open(options);
  std::string failed = speaks() && !opened.ok() ? opened.diagnostics()[0].message : "";
  HEDDLE_TRY(std::vector<std::string> all, peers_->Exchange(failed));
  if (speaks() && !opened.ok()) return Failure{opened.diagnostics()};
  if (!all[0].empty()) return Error(Diag::kCheckpoint, "rank 0 cannot save: {}", all[0]);
  if (!speaks()) opened = CheckpointWriter::Open(options);
  HEDDLE_TRY(writer_, std::move(opened));
  return Done{};
}

Status TrainingJob::Open() {
  if (!flags_.job.folder.empty()) {
    HEDDLE_RETURN_IF_ERROR(FindCheckpoint());
    HEDDLE_RETURN_IF_ERROR(OpenWriter());
    trainer_.save = [this](const Session& session) { return Save(session); };
  }
  int64_t after = resumed_ ? resumed_->step() : 0;
  if (resumed_) Say(fmt::format("going on from step {} ({})", after, resumed_->path()));
  if (!speaks()) return Done{};
  HEDDLE_TRY(log_, TrainingLog::Open({.steps = flags_.train.steps,
                                      .after_step = after,
                                      .log_every = flags_.job.log_every,
                                      .color = streams_.color,
                                      .jsonl = flags_.job.jsonl,
                                      .tensorboard = flags_.job.tensorboard},
                                     streams_.out, streams_.err));
  return Done{};
}

// A save that fails does not end the run: the checkpoint before it stays.
Status TrainingJob::Save(const Session& session) {
  Status saved = writer_->Save(SnapshotOf(session, planned_->model, State()));
  if (saved.ok() && flags_.job.async == "false") saved = writer_->Finish();
  if (!saved.ok())
    Say(fmt::format(
        "warning: no checkpoint was written: {}; training goes on, the one before stays",
        saved.diagnostics()[0].message));
  return Done{};
}

// --- Training

Result<std::unique_ptr<Session>> TrainingJob::MakeSession() const {
  SessionOptions options;
  options.world = {.device = device_, .reducer = reducer_, .threads = flags_.train.threads};
  if (peers_ != nullptr)
    options.world_of = [this](const Module& module) { return OwnRank(*peers_, module, device_); };
  options.params = params_;
  options.batches = BatchesOf(*dataset_, DataSplit::kTrain, planned_->model.batch.seq_len);
  options.accumulated = accumulated_;
  if (resumed_) options.saved = StateOf(*resumed_, planned_->model);
  StepModules modules{.step = &step_,
                      .first = first_ ? &*first_ : nullptr,
                      .more = more_ ? &*more_ : nullptr,
                      .forward = forward_ ? &*forward_ : nullptr};
  HEDDLE_TRY(Session session, Session::Make(planned_->model, modules, options));
  return std::make_unique<Session>(std::move(session));
}

// A rank that is asked to end tells the others to end with it, behind the next step: none of them can be further, because it takes
// part in every step.
Result<bool> TrainingJob::Stops(int64_t step) {
  bool asked = signals_->came() != 0;
  if (peers_ == nullptr) return asked;
  if (asked) HEDDLE_RETURN_IF_ERROR(peers_->Announce("stop", std::to_string(step + 1)));
  HEDDLE_TRY(std::optional<std::string> at, peers_->Announced("stop"));
  return at && step >= std::stoll(*at);
}

namespace {

std::vector<ExpertLoad> ExpertLoads(const Session& session) {
  std::vector<ExpertLoad> loads;
  for (const StepMetric& metric : session.metrics()) {
    if (!metric.name.ends_with(kExpertCounts)) continue;
    ExpertLoad load;
    load.layer = metric.name.substr(0, metric.name.size() - kExpertCounts.size());
    at::Tensor counts = metric.value.to(at::kCPU).contiguous();
    load.tokens.assign(counts.const_data_ptr<int64_t>(),
                       counts.const_data_ptr<int64_t>() + counts.numel());
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace

Status TrainingJob::Report(const Session& session, const TrainedStep& row) {
  HEDDLE_RETURN_IF_ERROR(hashes_.Add(flags_.train, session, planned_->model, peers_));
  if (row.skipped)
    Say(fmt::format("step {}: the loss is {}; the step is taken back", row.step, row.loss));
  if (!log_) return Done{};
  const Model& model = planned_->model;
  StepMetrics metrics{.step = row.step,
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
  if (std::optional<Bytes> peak = PeakMemory(device_)) metrics.memory = *peak;
  if (std::optional<Bytes> total = ReadMemory(device_).total)
    metrics.memory_share =
        static_cast<double>(metrics.memory.value) / static_cast<double>(total->value);
  metrics.experts = ExpertLoads(session);
  log_->Add(metrics);
  return Done{};
}

Result<ExitCode> TrainingJob::Train() {
  signals_.emplace();
  trainer_.stop = [this](int64_t step) { return Stops(step); };
  trainer_.on_step = [this](const Session& session, const TrainedStep& row) {
    return Report(session, row);
  };
  HEDDLE_TRY(std::unique_ptr<Session> session, MakeSession());
  if (session->steps() >= flags_.train.steps) {
    Say(fmt::format("all {} are trained already", Counted(flags_.train.steps, "step")));
    return ExitCode::kDone;
  }
  HEDDLE_TRY(TrainingOutcome outcome, heddle::Train(*session, trainer_));
  session.reset();
  return End(outcome);
}

Result<ExitCode> TrainingJob::End(const TrainingOutcome& outcome) {
  if (log_) log_->Finish();
  HEDDLE_RETURN_IF_ERROR(hashes_.Write(flags_.train, peers_, streams_));
  bool saved = true;
  if (writer_) {
    Status finished = writer_->Finish();
    saved = finished.ok();
    if (!saved)
      Say(fmt::format("error: the last checkpoint was not written: {}",
                      finished.diagnostics()[0].message));
    if (saved && writer_->last())
      Say(fmt::format("saved step {} in {}", writer_->last()->step, flags_.job.folder));
  }
  switch (outcome.end) {
    case TrainingEnd::kStopped:
      Say(fmt::format("stopped behind step {}, as {} asks", outcome.last.step,
                      signals_->came() != 0 ? ::strsignal(signals_->came()) : "another rank"));
      break;
    case TrainingEnd::kNotFinite:
      HEDDLE_RETURN_IF_ERROR(ExplainNotFinite(outcome.last));
      return ExitCode::kFault;
    case TrainingEnd::kSpike:
      Say(
          fmt::format("stopped: the loss of step {} is {}, more than {} times the mean of those "
                      "before it",
                      outcome.last.step, outcome.last.loss, flags_.job.spike_factor));
      return ExitCode::kFault;
    case TrainingEnd::kFinished: break;
  }
  return saved ? ExitCode::kDone : ExitCode::kFault;
}

// Trains again from where the run began, and looks at every value.
Status TrainingJob::ExplainNotFinite(const TrainedStep& row) {
  Say(fmt::format("stopped: the loss of step {} is {}; looking for the node that made it", row.step,
                  row.loss));
  HEDDLE_TRY(std::unique_ptr<Session> session, MakeSession());
  HEDDLE_TRY(std::optional<NodeFinding> finding, FirstNotFinite(*session, trainer_.lr, row.step));
  if (peers_ != nullptr) {
    HEDDLE_TRY(finding, ShareOrigin(*peers_)(std::move(finding)));
  }
  if (finding)
    Say(fmt::format("step {}, rank {}: {}\n  {}", finding->step, finding->rank, finding->what,
                    finding->node));
  return Done{};
}

void TrainingJob::Say(const std::string& line) const {
  if (speaks()) streams_.err << line << "\n" << std::flush;
}

}  // namespace heddle
