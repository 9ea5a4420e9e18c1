// heddle verify: trains a graph on ranks beside the same job done another way, and compares every bit.
#include <sstream>

#include <nlohmann/json.hpp>

#include "heddle/base/hash.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/plan/planned_step.h"
#include "heddle/cli/torch/train/hash_log.h"
#include "heddle/cli/torch/train/processes.h"
#include "heddle/cli/torch/train/train_flags.h"
#include "heddle/cli/torch/verify/verify_report.h"
#include "heddle/ir/text/print.h"
#include "heddle/metrics/progress.h"
#include "heddle/passes/passes.h"
#include "heddle/train/exact.h"
#include "heddle/verify/eager_run.h"
#include "heddle/verify/verify.h"

namespace heddle {
namespace {

struct VerifyCommand {
  static constexpr const char* kName = "verify";
  static constexpr const char* kSummary = "Train two ways and compare every bit after every step";
  static constexpr const char* kNote =
      "Trains the compiled graph on all ranks of the mesh, in this process or in one for each, and "
      "beside it the same job done another way. After every step the loss and every rank's "
      "gradients, moments and "
      "parameters must have the same bits; at the first that has not, it says where, and which "
      "node and pass it came from, and ends with exit code 2.";

  ModelFlags model;
  ParallelFlags parallel;
  CompileFlags compile{"fsdp"};
  TrainFlags train;
  ProcessFlags process;
  std::string against = "eager";
  bool json = false;
  std::string job;

  VerifyCommand() {
    // The job that `train` has.
    model.precision = "f32";
    model.seq_len = 256;
  }
  void Declare(Flags& flags) {
    model.Declare(flags);
    parallel.Declare(flags);
    compile.Declare(flags);
    train.Declare(flags);
    process.Declare(flags);
    flags.Option("--against", against,
                 "what the graph is held against: eager, the same training without a graph; none, "
                 "nothing; processes, the same graph with a process for each rank; or a pipeline, "
                 "which stands for that of --compile.passes as it is written");
    flags.Switch("--json", json, "print the report as JSON");
    flags.Config(job);
  }
  ExitCode Run(const Streams& streams) const;
  // As one rank of a job.
  ExitCode RunAs(const PeerAddress& address, const Streams& streams) const;
};

// One run of the command.
class Verification {
 public:
  Verification(const VerifyCommand& command, const Streams& streams)
      : command_(command), streams_(streams), progress_(streams.err, "step", command.train.steps) {}

  // Everything that can be wrong with flags and files. Unless all ranks are in this process, `processes` is how many the job has;
  // 0: as many as the mesh has ranks.
  Status Prepare(std::optional<int64_t> processes, int64_t local_rank = 0);
  int64_t ranks() const { return graph_.mesh.ranks(); }
  // From here on, this process has one rank only. Fails if the others do other work.
  Status Join(Peers& peers);
  // What goes wrong now is no mistake of the user's.
  Status Train();
  ExitCode Print(const Streams& streams) const;

 private:
  bool against_pipeline() const { return IsPipeline(command_.against); }
  // With a pipeline, or by the flags.
  Result<Module> Compiled(const std::optional<std::string>& pipeline) const;
  Result<std::unique_ptr<Session>> MakeSession(const Module& module) const;
  Result<std::unique_ptr<Session>> MakeLockstep(const Module& module) const;
  Result<std::unique_ptr<Session>> MakeSession(const Module& module, WorldOptions world) const;
  EagerOptions Eager() const;
  Status CheckEager() const;
  Status FindPass();
  VerifiedJob Job() const;
  // Steps are shown as they are done.
  void Show(const StepRow& row);

  const VerifyCommand& command_;
  const Streams& streams_;
  // None if all ranks are in this process.
  Peers* peers_ = nullptr;
  Progress progress_;
  c10::Device device_ = c10::kCPU;
  std::optional<PlannedStep> step_;
  OptimizerOptions optimizer_;
  Reducer reducer_;
  ParamSource params_;
  HashLog hashes_;
  // The pipeline that the flags ask for.
  CompileOptions own_;
  Module graph_;
  // That of the pipeline which it is held against.
  Module other_;
  VerifyOptions options_;
  VerifyReport report_;
};

Status Verification::CheckEager() const {
  auto refuse = [](std::string_view flag) -> Status {
    return Error(Diag::kBadChoice,
                 "eager training knows no {}; --against=none trains the graph alone, "
                 "--against=PIPELINE compares two pipelines",
                 flag);
  };
  if (!command_.parallel.plan_file.empty()) return refuse("--plan");
  if (command_.parallel.gradients != "sum") return refuse("--parallelism.gradients");
  if (command_.parallel.tensor_gradients != "narrow")
    return refuse("--parallelism.tensor_gradients");
  if (command_.compile.reduce_first) return refuse("--parallelism.reduce_before_scatter");
  return Done{};
}

Result<Module> Verification::Compiled(const std::optional<std::string>& pipeline) const {
  HEDDLE_TRY(CompileOptions options,
             command_.compile.Options(FormatPlan(step_->plan), /*want_text=*/false));
  options.notes = step_->layout.notes;
  if (pipeline) {
    options.pipeline = *pipeline;
    options.changes = {};
    options.memory = {};
  }
  Module module = step_->module;
  HEDDLE_TRY(CompileReport report, Compile(module, options));
  command_.compile.Print(report, streams_);
  return module;
}

Result<std::unique_ptr<Session>> Verification::MakeSession(const Module& module) const {
  if (peers_ == nullptr) return MakeLockstep(module);
  HEDDLE_TRY(WorldOptions world, OwnRank(*peers_, module, device_));
  return MakeSession(module, std::move(world));
}

Result<std::unique_ptr<Session>> Verification::MakeLockstep(const Module& module) const {
  return MakeSession(module,
                     {.device = device_, .reducer = reducer_, .threads = command_.train.threads});
}

Result<std::unique_ptr<Session>> Verification::MakeSession(const Module& module,
                                                           WorldOptions world) const {
  SessionOptions options;
  options.world = std::move(world);
  options.params = params_;
  options.batches = command_.train.Batches(step_->model);
  HEDDLE_TRY(Session session, Session::Make(step_->model, module, options));
  return std::make_unique<Session>(std::move(session));
}

EagerOptions Verification::Eager() const {
  return {.replicate = step_->layout.degree("replicate"),
          .shard = step_->layout.degree("shard"),
          .tensor = step_->layout.degree("tensor"),
          .expert = step_->layout.expert,
          .sequence_parallel = step_->layout.preset.sequence_parallel,
          .split_loss = step_->layout.preset.split_loss,
          .expert_tensor = command_.parallel.expert_tensor,
          .reducer = reducer_,
          .optimizer = optimizer_,
          .narrow_grads = command_.parallel.reduces_narrow(),
          // Backward on a GPU has one thread for all ranks.
          .threads = device_.is_cpu() ? command_.train.threads : 1,
          .params = params_,
          .batches = command_.train.Batches(step_->model),
          .device = device_};
}

Status Verification::Prepare(std::optional<int64_t> processes, int64_t local_rank) {
  HEDDLE_TRY(device_, command_.model.Open(local_rank, /*exact=*/true, streams_));
  HEDDLE_RETURN_IF_ERROR(command_.train.Check());
  HEDDLE_RETURN_IF_ERROR(command_.parallel.CheckPlanIsFile());
  HEDDLE_RETURN_IF_ERROR(
      CheckOneOutput({{"the hashes", command_.train.hashes == "-"}, {"the report", true}}));
  HEDDLE_TRY(reducer_, command_.train.MakeReducer(processes.has_value(), device_.type()));
  if (command_.against == "eager") HEDDLE_RETURN_IF_ERROR(CheckEager());
  HEDDLE_TRY(optimizer_, command_.train.Optimizer());
  HEDDLE_TRY(step_,
             PlanStep(command_.model, command_.parallel, streams_, {.optimizer = optimizer_}));
  if (processes.value_or(0) > 0)
    HEDDLE_RETURN_IF_ERROR(CheckProcesses(*processes, step_->layout.mesh));
  HEDDLE_TRY(params_,
             command_.model.Params(step_->model, static_cast<uint64_t>(command_.train.seed)));
  HEDDLE_TRY(own_, command_.compile.Options("", /*want_text=*/false));
  HEDDLE_TRY(graph_, Compiled(std::nullopt));
  options_.steps = command_.train.steps;
  options_.lr = command_.train.lr;
  options_.params = step_->model.params.size();
  options_.graph = [this] { return MakeSession(graph_); };
  if (command_.against == "eager") {
    HEDDLE_RETURN_IF_ERROR(CheckEagerExists(step_->model, Eager()));
    options_.eager = [this] { return MakeEagerRun(step_->model, Eager()); };
  }
  if (against_pipeline()) {
    HEDDLE_TRY(other_, Compiled(command_.against));
    options_.other_graph = [this] { return MakeSession(other_); };
  }
  options_.on_step = [this](const Session& session, const StepRow& row) -> Status {
    if (peers_ == nullptr || peers_->rank() == 0) Show(row);
    return hashes_.Add(command_.train, session, step_->model, peers_);
  };
  return Done{};
}

Status Verification::Join(Peers& peers) {
  peers_ = &peers;
  options_.share_comparison = ShareComparison(peers);
  options_.share_origin = ShareOrigin(peers);
  if (command_.against == "processes")
    options_.other_graph = [this] { return MakeLockstep(graph_); };
  const auto& batch = step_->model.batch;
  std::string job = fmt::format(
      "heddle {}, torch {}\nmodel {} {} in {}\nmesh [{}]\nbatch {} x {}\ngraph {:016x}\nplan "
      "{:016x}\n"
      "against {}\nsteps {}, seed {}, lr {}",
      Version(), HEDDLE_TORCH_VERSION, step_->model.config.family->name, step_->model.config.flavor,
      command_.model.precision, Format(graph_.mesh), batch.batch, batch.seq_len,
      Hash64(heddle::Print(graph_)), Hash64(FormatPlan(step_->plan)), command_.against,
      command_.train.steps, command_.train.seed, command_.train.lr);
  return peers.Agree("job", job);
}

Status Verification::Train() {
  HEDDLE_TRY(report_, Verify(options_));
  progress_.Clear();
  HEDDLE_RETURN_IF_ERROR(hashes_.Write(command_.train, peers_, streams_));
  return report_.differs() && against_pipeline() ? FindPass() : Status(Done{});
}

// One of the two pipelines changes bits of the graph that both begin with.
Status Verification::FindPass() {
  HEDDLE_TRY(Module lowered, Compiled(""));
  std::string own = own_.memory.empty() ? own_.pipeline
                                        : fmt::format("clean, {},\n{}", own_.memory, own_.pipeline);
  for (const auto& [text, changes] :
       {std::pair(own, own_.changes), std::pair(command_.against, PipelineChanges())}) {
    HEDDLE_TRY(Pipeline pipeline, ParsePipeline(text, Passes()));
    HEDDLE_RETURN_IF_ERROR(AdjustPipeline(changes, Passes(), pipeline));
    HEDDLE_TRY(report_.pass,
               FirstDifferingPass(lowered, pipeline, options_, report_.rows.back().step,
                                  [this](const Module& m) { return MakeSession(m); }));
    if (!report_.pass) continue;
    report_.pass = fmt::format("{} of pipeline `{}`", *report_.pass, text);
    break;
  }
  return Done{};
}

void Verification::Show(const StepRow& row) {
  progress_.Clear();
  if (!command_.json) {
    if (row.step == 1) streams_.out << FormatHead(Job());
    streams_.out << FormatStep(Job(), row) << std::flush;
  }
  progress_.Show(row.step);
}

VerifiedJob Verification::Job() const {
  const ModelConfig& config = step_->model.config;
  return {.model = std::string(config.family->name),
          .flavor = config.flavor,
          .precision = command_.model.precision,
          .mesh = graph_.mesh,
          .processes = peers_ != nullptr,
          .pipeline = own_.pipeline,
          .against = command_.against,
          .reducer = peers_ != nullptr && !device_.is_cpu() ? "nccl" : reducer_.Format(),
          .device = device_.type(),
          .params = step_->model.params};
}

ExitCode Verification::Print(const Streams& streams) const {
  if (command_.json) {
    PrintJson(ToJson(Job(), report_), streams);
  } else {
    streams.out << "\n" << FormatEnd(Job(), report_);
  }
  if (report_.differs()) return ExitCode::kDiffers;
  return report_.finite ? ExitCode::kDone : ExitCode::kFault;
}

ExitCode VerifyCommand::Run(const Streams& streams) const {
  Result<std::optional<PeerAddress>> address = PeerAddress::FromEnvironment();
  if (!address.ok()) return Report(address.diagnostics(), streams);
  if (*address) return RunAs(**address, streams);
  bool launches = process.processes > 0 || against == "processes";
  std::optional<SignalGate> gate;
  if (launches) gate.emplace();
  Verification verification(*this, streams);
  Status prepared =
      verification.Prepare(launches ? std::optional(process.processes) : std::nullopt);
  if (!prepared.ok()) return Report(prepared.diagnostics(), streams);
  if (launches) return RunOnProcesses(verification.ranks(), process, *gate, streams);
  Status trained = verification.Train();
  if (trained.ok()) return verification.Print(streams);
  Report(trained.diagnostics(), streams);
  return ExitCode::kFault;
}

ExitCode VerifyCommand::RunAs(const PeerAddress& address, const Streams& streams) const {
  Verification verification(*this, streams);
  auto work = [&](Peers& peers) -> Result<ExitCode> {
    HEDDLE_RETURN_IF_ERROR(verification.Join(peers));
    HEDDLE_RETURN_IF_ERROR(verification.Train());
    // All have the same report.
    std::ostringstream unseen;
    Streams quiet{streams.in, unseen, streams.err, streams.color};
    return verification.Print(peers.rank() == 0 ? streams : quiet);
  };
  return RunAsRank(
      address, process,
      [&] { return verification.Prepare(address.world_size, address.local_rank); }, work, streams);
}

}  // namespace

void AddVerify(CommandSet& commands) { commands.Add<VerifyCommand>(); }

}  // namespace heddle
