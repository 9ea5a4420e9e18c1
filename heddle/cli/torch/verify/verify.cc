// heddle verify: trains a graph on ranks beside the same job done another way, and compares every bit.
#include <sstream>

#include <nlohmann/json.hpp>

#include "heddle/base/hash.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/plan/planned_step.h"
#include "heddle/cli/torch/train/hash_log.h"
#include "heddle/cli/torch/train/processes.h"
#include "heddle/cli/torch/train/step_graphs.h"
#include "heddle/cli/torch/train/train_flags.h"
#include "heddle/cli/torch/verify/against_pytorch.h"
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
  JobFlags steps;
  ProcessFlags process;
  std::string against = "eager";
  std::string python = "python3";
  bool json = false;
  std::string job;

  VerifyCommand() {
    // The job that `train` has.
    model.precision = "f32";
    model.seq_len = 256;
    steps.dataset = "synthetic";
  }
  void Declare(Flags& flags) {
    model.Declare(flags, "--runtime.device");
    parallel.Declare(flags);
    compile.Declare(flags);
    train.Declare(flags);
    steps.DeclareSteps(flags);
    process.Declare(flags);
    flags.Option("--against", against,
                 "what the graph is compared with: eager, the same training without a graph; "
                 "pytorch, PyTorch's own FSDP2 and tensor parallelism, one process per rank; none, "
                 "nothing; processes, the same graph with one process per rank; or a pipeline, "
                 "which replaces that of --compile.passes");
    flags.Option("--python", python, "the Python that has torch, for --against=pytorch");
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
  int64_t ranks() const { return graph().mesh.ranks(); }
  // From here on, this process has one rank only. Fails if the others do other work.
  Status Join(Peers& peers);
  // --against=pytorch: starts PyTorch, or checks that it could be started.
  Status StartReference();
  Status CheckReference() const;
  // What goes wrong now is no mistake of the user's.
  Status Train();
  ExitCode Print(const Streams& streams) const;

 private:
  bool against_pipeline() const { return IsPipeline(command_.against); }
  // With a pipeline, or by the flags.
  Result<Module> Compiled(const std::optional<std::string>& pipeline) const;
  Result<std::unique_ptr<Session>> MakeSession(const Module& module) const;
  Result<std::unique_ptr<Session>> MakeLockstep(const Module& module) const;
  Result<std::unique_ptr<Session>> MakeSession(const Module& module, SessionOptions options) const;
  EagerOptions Eager() const;
  Status CheckEager() const;
  // Gradient accumulation and validation are compared with PyTorch's alone.
  Status CheckSteps() const;
  const PlannedStep& step() const { return graphs_->planned; }
  const Module& graph() const { return graphs_->step; }
  bool leads() const { return peers_ == nullptr || peers_->rank() == 0; }
  PyTorchJob ReferenceJob() const;
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
  OptimizerOptions optimizer_;
  std::optional<Schedule> schedule_;
  std::unique_ptr<Dataset> dataset_;
  Reducer reducer_;
  ParamSource params_;
  HashLog hashes_;
  // The pipeline that the flags ask for.
  CompileOptions own_;
  std::optional<StepGraphs> graphs_;
  std::optional<AgainstPyTorch> pytorch_;
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

Status Verification::CheckSteps() const {
  if (command_.against == "pytorch") return Done{};
  const JobFlags& steps = command_.steps;
  if (steps.validation_interval > 0)
    return Error(Diag::kBadChoice,
                 "--validation.interval is {}; only --against=pytorch validates, --against is {}",
                 steps.validation_interval, command_.against);
  if (graphs_->accumulated > 1 && command_.against != "none")
    return Error(Diag::kBadChoice,
                 "--training.global_batch_size is {}, which takes {} batches in a step; only "
                 "--against=pytorch and none accumulate gradients, --against is {}",
                 steps.global_batch_size, graphs_->accumulated, command_.against);
  return Done{};
}

Result<Module> Verification::Compiled(const std::optional<std::string>& pipeline) const {
  HEDDLE_TRY(CompileOptions options,
             command_.compile.Options(FormatPlan(step().plan), /*want_text=*/false));
  options.notes = step().layout.notes;
  if (pipeline) {
    options.pipeline = *pipeline;
    options.changes = {};
    options.memory = {};
  }
  Module module = step().module;
  HEDDLE_TRY(CompileReport report, Compile(module, options));
  command_.compile.Print(report, streams_);
  return module;
}

Result<std::unique_ptr<Session>> Verification::MakeSession(const Module& module) const {
  if (peers_ == nullptr) return MakeLockstep(module);
  SessionOptions options;
  options.world_of = [this](const Module& m) { return OwnRank(*peers_, m, device_); };
  return MakeSession(module, std::move(options));
}

Result<std::unique_ptr<Session>> Verification::MakeLockstep(const Module& module) const {
  SessionOptions options;
  options.world = {.device = device_, .reducer = reducer_, .threads = command_.train.threads};
  return MakeSession(module, std::move(options));
}

Result<std::unique_ptr<Session>> Verification::MakeSession(const Module& module,
                                                           SessionOptions options) const {
  options.params = params_;
  options.batches = BatchesOf(*dataset_, DataSplit::kTrain, step().model.batch.seq_len);
  options.accumulated = graphs_->accumulated;
  // Other pipelines have one graph for a step.
  StepModules modules = &module == &graph() ? graphs_->modules() : StepModules{.step = &module};
  HEDDLE_TRY(Session session, Session::Make(step().model, modules, options));
  return std::make_unique<Session>(std::move(session));
}

EagerOptions Verification::Eager() const {
  return {.replicate = step().layout.degree("replicate"),
          .shard = step().layout.degree("shard"),
          .tensor = step().layout.degree("tensor"),
          .expert = step().layout.expert,
          .sequence_parallel = step().layout.preset.sequence_parallel,
          .split_loss = step().layout.preset.split_loss,
          .expert_tensor = command_.parallel.expert_tensor,
          .reducer = reducer_,
          .optimizer = optimizer_,
          .narrow_grads = command_.parallel.reduces_narrow(),
          // Backward on a GPU has one thread for all ranks.
          .threads = device_.is_cpu() ? command_.train.threads : 1,
          .params = params_,
          .batches = BatchesOf(*dataset_, DataSplit::kTrain, step().model.batch.seq_len),
          .device = device_};
}

Status Verification::Prepare(std::optional<int64_t> processes, int64_t local_rank) {
  HEDDLE_TRY(device_, command_.model.Open(local_rank, /*exact=*/true));
  HEDDLE_RETURN_IF_ERROR(command_.train.Check());
  HEDDLE_RETURN_IF_ERROR(command_.parallel.CheckPlanIsFile());
  HEDDLE_RETURN_IF_ERROR(
      CheckOneOutput({{"the hashes", command_.train.hashes == "-"}, {"the report", true}}));
  HEDDLE_TRY(reducer_, command_.train.MakeReducer(processes.has_value(), device_.type()));
  if (command_.against == "eager") HEDDLE_RETURN_IF_ERROR(CheckEager());
  HEDDLE_TRY(optimizer_, command_.train.Optimizer());
  HEDDLE_TRY(schedule_, command_.steps.MakeSchedule(command_.train.steps, command_.train.lr));
  HEDDLE_TRY(graphs_, CompileStepGraphs({command_.model, command_.parallel, command_.compile,
                                         command_.steps, optimizer_},
                                        streams_));
  HEDDLE_RETURN_IF_ERROR(CheckSteps());
  if (command_.against == "pytorch") HEDDLE_RETURN_IF_ERROR(LayoutForPyTorch(ReferenceJob()));
  if (processes.value_or(0) > 0)
    HEDDLE_RETURN_IF_ERROR(CheckProcesses(*processes, step().layout.mesh));
  auto seed = static_cast<uint64_t>(command_.train.seed);
  Model& model = graphs_->planned.model;
  HEDDLE_TRY(params_, command_.model.Params(model, seed));
  HEDDLE_TRY(dataset_,
             command_.steps.OpenDataset(model, graphs_->accumulated * model.batch.batch, seed));
  HEDDLE_TRY(own_, command_.compile.Options("", /*want_text=*/false));
  options_.steps = command_.train.steps;
  options_.lr = [this](int64_t step) { return schedule_->At(step); };
  options_.params = step().model.params.size();
  options_.graph = [this] { return MakeSession(graph()); };
  if (command_.against == "eager") {
    HEDDLE_RETURN_IF_ERROR(CheckEagerExists(step().model, Eager()));
    options_.eager = [this] { return MakeEagerRun(step().model, Eager()); };
  }
  if (against_pipeline()) {
    HEDDLE_TRY(other_, Compiled(command_.against));
    options_.other_graph = [this] { return MakeSession(other_); };
  }
  options_.on_step = [this](const Session& session, const StepRow& row) -> Status {
    if (leads()) Show(row);
    return hashes_.Add(command_.train, session, step().model, peers_);
  };
  return Done{};
}

Status Verification::Join(Peers& peers) {
  peers_ = &peers;
  options_.share_comparison = ShareComparison(peers);
  options_.share_origin = ShareOrigin(peers);
  if (command_.against == "processes")
    options_.other_graph = [this] { return MakeLockstep(graph()); };
  const auto& batch = step().model.batch;
  std::string job = fmt::format(
      "heddle {}, torch {}\nmodel {} {} in {}\nmesh [{}]\nbatch {} x {}\ngraph {:016x}\nplan "
      "{:016x}\n"
      "against {}\nsteps {}, seed {}, lr {}",
      Version(), HEDDLE_TORCH_VERSION, step().model.config.family->name, step().model.config.flavor,
      command_.model.precision, Format(graph().mesh), batch.batch, batch.seq_len,
      Hash64(heddle::Print(graph())), Hash64(FormatPlan(step().plan)), command_.against,
      command_.train.steps, command_.train.seed, command_.train.lr);
  return peers.Agree("job", job);
}

PyTorchJob Verification::ReferenceJob() const {
  return {.model = command_.model,
          .parallel = command_.parallel,
          .train = command_.train,
          .job = command_.steps,
          .step = step(),
          .accumulated = graphs_->accumulated,
          .reduce_first = command_.compile.reduce_first};
}

Status Verification::CheckReference() const {
  if (command_.against != "pytorch") return Done{};
  return PyTorchReference(command_.python, HEDDLE_TORCH_VERSION).CheckTorch();
}

Status Verification::StartReference() {
  if (command_.against != "pytorch") return Done{};
  pytorch_.emplace(ReferenceJob(), *dataset_, peers_);
  return pytorch_->Start(command_.python, HEDDLE_TORCH_VERSION, params_, streams_);
}

Status Verification::Train() {
  if (command_.against == "pytorch") {
    HEDDLE_TRY(std::unique_ptr<Session> session, MakeSession(graph()));
    HEDDLE_TRY(report_, pytorch_->Train(*session, options_));
  } else {
    HEDDLE_TRY(report_, Verify(options_));
  }
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
  const ModelConfig& config = step().model.config;
  return {.model = std::string(config.family->name),
          .flavor = config.flavor,
          .precision = command_.model.precision,
          .mesh = graph().mesh,
          .processes = peers_ != nullptr,
          .pipeline = own_.pipeline,
          .against = command_.against,
          .reducer = peers_ != nullptr && !device_.is_cpu() ? "nccl" : reducer_.Format(),
          .pytorch = pytorch_ ? pytorch_->version() : "",
          .device = device_.type(),
          .params = step().model.params};
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
  Status reference = launches ? verification.CheckReference() : verification.StartReference();
  if (!reference.ok()) return Report(reference.diagnostics(), streams);
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
    HEDDLE_RETURN_IF_ERROR(verification.StartReference());
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
