// heddle verify: trains a graph on ranks beside the same job done another way, and compares every bit.
#include <sstream>

#include <nlohmann/json.hpp>

#include "heddle/base/hash.h"
#include "heddle/budget/trial.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/plan/planned_step.h"
#include "heddle/cli/torch/train/agreement.h"
#include "heddle/cli/torch/train/hash_log.h"
#include "heddle/cli/torch/train/processes.h"
#include "heddle/cli/torch/train/step_graphs.h"
#include "heddle/cli/torch/train/train_flags.h"
#include "heddle/cli/torch/verify/against_pytorch.h"
#include "heddle/cli/torch/verify/verify_report.h"
#include "heddle/ir/text/print.h"
#include "heddle/metrics/progress.h"
#include "heddle/passes/passes.h"
#include "heddle/plan/marks.h"
#include "heddle/train/exact.h"
#include "heddle/verify/eager_run.h"
#include "heddle/verify/verify.h"

namespace heddle {
namespace {

struct VerifyCommand {
  static constexpr const char* kName = "verify";
  static constexpr const char* kSummary =
      "Train in two ways and compare every bit after every step";
  static constexpr const char* kNote =
      "Trains the compiled graph on all ranks of the mesh, in this process or in one per rank, and "
      "the same job in another way. After every step the loss and every rank's gradients, moments "
      "and parameters must have the same bits. At the first difference it prints the tensor, the "
      "node and the pass that it came from, and exits with code 2.";
  static constexpr const char* kExamples =
      "heddle verify --model=llama3 --parallelism.data_parallel_shard_degree=4 "
      "--training.steps=3\n"
      "heddle verify --parallelism.tensor_parallel_degree=2 --against=processes --nproc=2";

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
  // For comparing the flags with those of other ranks.
  std::string values;

  VerifyCommand() {
    // The job that `train` has.
    model.precision = "f32";
    model.seq_len = 256;
    model.deterministic = true;
    steps.dataset = "synthetic";
  }
  void Declare(Flags& flags) {
    model.Declare(flags);
    parallel.Declare(flags);
    compile.Declare(flags);
    compile.DeclareBudget(flags);
    train.Declare(flags);
    steps.DeclareSteps(flags);
    process.Declare(flags);
    flags.Section("Comparison");
    flags.Option(
        "--against", against,
        "run to compare with: eager (the same training without a graph), pytorch (PyTorch's "
        "own FSDP2 and tensor parallelism, one process per rank), none, processes (the same "
        "graph with one process per rank), or a pipeline, written as for --compile.passes "
        "(default: eager; clean with --plan)");
    flags.Option("--python=PATH", python, "Python that has torch, for --against=pytorch");
    flags.Switch("--json", json, "print the report as JSON");
    flags.Config(job);
    flags.Values(values);
  }
  ExitCode Run(const Streams& streams) const;
  // As one rank of a job.
  ExitCode RunAs(const PeerAddress& address, const Streams& streams) const;
  // Eager training cannot follow a plan from a file.
  std::string Against() const {
    bool chosen = parallel.plan_file.empty() || model.given->Has("--against");
    return chosen ? against : "clean";
  }
};

// One run of the command.
class Verification {
 public:
  Verification(const VerifyCommand& command, const Streams& streams)
      : command_(command),
        streams_(streams),
        against_(command.Against()),
        progress_(streams.err, "step", command.train.steps) {}

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
  bool against_pipeline() const { return IsPipeline(against_); }
  // With a pipeline, or by the flags.
  Result<CompileOptions> Options(const std::optional<std::string>& pipeline) const;
  // The graphs of a step with a pipeline instead of the one that the flags name.
  Result<StepGraphs> CompiledWith(const std::string& pipeline) const;
  Result<std::unique_ptr<Session>> MakeSession(const StepGraphs& graphs) const;
  Result<std::unique_ptr<Session>> MakeLockstep(const StepGraphs& graphs) const;
  Result<std::unique_ptr<Session>> MakeSession(const StepGraphs& graphs,
                                               SessionOptions options) const;
  EagerOptions Eager() const;
  Status CheckEager() const;
  // Gradient accumulation and validation are compared with PyTorch's alone.
  Status CheckSteps() const;
  const PlannedStep& step() const { return compiled_->planned; }
  const Module& graph() const { return compiled_->graphs.step; }
  // With all that flags and searches decide.
  const Plan& plan() const { return compiled_->report.plan; }
  int64_t micro_batches() const { return step().micro_batches(); }
  bool leads() const { return peers_ == nullptr || peers_->rank() == 0; }
  PyTorchJob ReferenceJob() const;
  Status FindPass();
  VerifiedJob Job() const;
  // Steps are shown as they are done.
  void Show(const StepRow& row);

  const VerifyCommand& command_;
  const Streams& streams_;
  // Eager, pytorch, none, processes, or a pipeline.
  std::string against_;
  // None if all ranks are in this process.
  Peers* peers_ = nullptr;
  Progress progress_;
  c10::Device device_ = c10::kCPU;
  std::unique_ptr<Kernels> kernels_;
  OptimizerOptions optimizer_;
  std::optional<Schedule> schedule_;
  std::unique_ptr<Dataset> dataset_;
  Reducer reducer_;
  ParamSource params_;
  HashLog hashes_;
  // The pipeline that the flags ask for.
  CompileOptions own_;
  std::optional<CompiledStep> compiled_;
  std::optional<AgainstPyTorch> pytorch_;
  // The graphs of the pipeline that it is compared with.
  StepGraphs other_;
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
  if (against_ == "pytorch") return Done{};
  const JobFlags& steps = command_.steps;
  if (steps.validation_interval > 0)
    return Error(Diag::kBadChoice,
                 "--validation.interval is {}; only --against=pytorch validates, --against is {}",
                 steps.validation_interval, against_);
  if (micro_batches() > 1 && against_ == "eager")
    return Error(Diag::kBadChoice,
                 "the step has {} micro-batches; eager training does not accumulate gradients: use "
                 "--against=pytorch, none, processes or a pipeline",
                 micro_batches());
  return Done{};
}

Result<CompileOptions> Verification::Options(const std::optional<std::string>& pipeline) const {
  HEDDLE_TRY(CompileOptions options, command_.compile.Options(plan(), /*want_text=*/false));
  if (!pipeline) return options;
  options.pipeline = *pipeline;
  options.changes = {};
  options.memory = {};
  options.budget = {};
  options.decisions = {};
  return options;
}

Result<StepGraphs> Verification::CompiledWith(const std::string& pipeline) const {
  auto compile = [&](const CaptureOptions& capture) -> Result<Module> {
    HEDDLE_TRY(PlannedStep pass, PlanPass(command_.model, plan(), capture));
    HEDDLE_TRY(CompileOptions options, Options(pipeline));
    HEDDLE_RETURN_IF_ERROR(Compile(pass.module, options));
    return std::move(pass.module);
  };
  return CompilePasses({.micro_batches = micro_batches(), .optimizer = optimizer_}, compile);
}

Result<std::unique_ptr<Session>> Verification::MakeSession(const StepGraphs& graphs) const {
  if (peers_ == nullptr) return MakeLockstep(graphs);
  SessionOptions options;
  options.world_of = [this](const Module& module) { return OwnRank(*peers_, module, device_); };
  return MakeSession(graphs, std::move(options));
}

Result<std::unique_ptr<Session>> Verification::MakeLockstep(const StepGraphs& graphs) const {
  SessionOptions options;
  options.world = {.device = device_, .reducer = reducer_, .threads = command_.train.threads};
  return MakeSession(graphs, std::move(options));
}

Result<std::unique_ptr<Session>> Verification::MakeSession(const StepGraphs& graphs,
                                                           SessionOptions options) const {
  if (kernels_)
    options.kernels = [this](const RunPlan& plan) { return MakeKernelBackend(plan, *kernels_); };
  options.recorder = command_.train.Recorder(device_);
  options.notice = [this](const std::string& line) {
    if (leads()) streams_.err << line << "\n" << std::flush;
  };
  options.params = params_;
  options.batches = BatchesOf(*dataset_, DataSplit::kTrain, step().model.batch.seq_len);
  options.accumulated = micro_batches();
  options.count_ignored = command_.model.loss_divisor == "all_tokens";
  HEDDLE_TRY(Session session, Session::Make(step().model, graphs.modules(), options));
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
  HEDDLE_TRY(device_, command_.model.Open(local_rank, streams_));
  HEDDLE_RETURN_IF_ERROR(command_.train.Check());
  kernels_ = command_.train.OwnKernels(device_, [this](const std::string& line) {
    streams_.err << line << "\n" << std::flush;
  });
  HEDDLE_RETURN_IF_ERROR(command_.parallel.CheckPlanIsFile());
  HEDDLE_RETURN_IF_ERROR(
      CheckOneOutput({{"the hashes", command_.train.hashes == "-"}, {"the report", true}}));
  HEDDLE_TRY(reducer_, command_.train.MakeReducer(processes.has_value(), device_.type()));
  if (against_ == "eager") HEDDLE_RETURN_IF_ERROR(CheckEager());
  HEDDLE_TRY(optimizer_, command_.train.Optimizer());
  HEDDLE_TRY(schedule_, command_.steps.MakeSchedule(command_.train.steps, command_.train.lr));
  HEDDLE_TRY(compiled_, CompileStep({command_.model, command_.parallel, command_.compile,
                                     command_.steps, optimizer_},
                                    streams_));
  HEDDLE_RETURN_IF_ERROR(CheckSteps());
  if (against_ == "pytorch") HEDDLE_RETURN_IF_ERROR(LayoutForPyTorch(ReferenceJob()));
  if (processes.value_or(0) > 0)
    HEDDLE_RETURN_IF_ERROR(CheckProcesses(*processes, step().layout.mesh));
  auto seed = static_cast<uint64_t>(command_.train.seed);
  Model& model = compiled_->planned.model;
  HEDDLE_TRY(params_, command_.model.Params(model, seed));
  HEDDLE_TRY(dataset_,
             command_.steps.OpenDataset(model, micro_batches() * model.batch.batch, seed));
  HEDDLE_TRY(own_, Options(std::nullopt));
  options_.steps = command_.train.steps;
  options_.lr = [this](int64_t step) { return schedule_->At(step); };
  options_.params = step().model.params.size();
  options_.graph = [this] { return MakeSession(compiled_->graphs); };
  if (against_ == "eager") {
    HEDDLE_RETURN_IF_ERROR(CheckEagerExists(step().model, Eager()));
    options_.eager = [this] { return MakeEagerRun(step().model, Eager()); };
  }
  if (against_pipeline()) {
    HEDDLE_TRY(other_, CompiledWith(against_));
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
  if (against_ == "processes")
    options_.other_graph = [this] { return MakeLockstep(compiled_->graphs); };
  HEDDLE_RETURN_IF_ERROR(
      AgreeOnJob(peers, command_.values,
                 fmt::format("model {}\nmesh [{}]\nplan {:016x}\ngraph {:016x}",
                             step().model.config.family->name, Format(graph().mesh),
                             Hash64(FormatPlan(plan())), Hash64(heddle::Print(graph())))));
  if (command_.model.load_path.empty()) return Done{};
  StateHash hash;
  ParamSource params = hash.Adding(params_);
  for (size_t param = 0; param < step().model.params.size(); ++param)
    HEDDLE_RETURN_IF_ERROR(params(param));
  for (const auto& [name, buffer] : step().model.state) hash.Add(buffer);
  return hash.Agree(peers, command_.model.load_path);
}

PyTorchJob Verification::ReferenceJob() const {
  return {.model = command_.model,
          .parallel = command_.parallel,
          .train = command_.train,
          .job = command_.steps,
          .step = step(),
          .accumulated = micro_batches(),
          .reduce_first = command_.compile.reduce_first};
}

Status Verification::CheckReference() const {
  if (against_ != "pytorch") return Done{};
  return PyTorchReference(command_.python, HEDDLE_TORCH_VERSION).CheckTorch();
}

Status Verification::StartReference() {
  if (against_ != "pytorch") return Done{};
  pytorch_.emplace(ReferenceJob(), *dataset_, peers_);
  return pytorch_->Start(command_.python, HEDDLE_TORCH_VERSION, params_, streams_);
}

Status Verification::Train() {
  if (against_ == "pytorch") {
    HEDDLE_TRY(std::unique_ptr<Session> session, MakeSession(compiled_->graphs));
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
  HEDDLE_TRY(StepGraphs lowered, CompiledWith(""));
  // The marks of a plan are made after `clean`.
  bool marked = !own_.decisions.marks.empty();
  std::string memory = marked ? std::string(kCarryOut) : own_.memory;
  std::string own =
      memory.empty() ? own_.pipeline : fmt::format("clean, {},\n{}", memory, own_.pipeline);
  for (const auto& [text, changes] :
       {std::pair(own, own_.changes), std::pair(against_, PipelineChanges())}) {
    HEDDLE_TRY(Pipeline pipeline, ParsePipeline(text, Passes()));
    HEDDLE_RETURN_IF_ERROR(AdjustPipeline(changes, Passes(), pipeline));
    StepGraphs begin = lowered;
    if (marked && text == own) {
      HEDDLE_TRY(Pipeline clean, ParsePipeline("clean", Passes()));
      HEDDLE_RETURN_IF_ERROR(RunPipeline(begin.step, clean));
      HEDDLE_RETURN_IF_ERROR(SetMarks(own_.decisions.marks, begin.step.graphs[0]));
    }
    // Changes the last micro-batch; the others stay as they are.
    auto make = [&](const Module& module) {
      StepGraphs changed = lowered;
      changed.step = module;
      return MakeSession(changed);
    };
    HEDDLE_TRY(report_.pass,
               FirstDifferingPass(begin.step, pipeline, options_, report_.rows.back().step, make));
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
  std::optional<AttentionKind> attention = step().model.attention();
  return {.model = std::string(config.family->name),
          .flavor = config.flavor,
          .precision = command_.model.precision,
          .mesh = graph().mesh,
          .processes = peers_ != nullptr,
          .pipeline = command_.compile.PipelineName(step().plan.decisions),
          .against = against_,
          .reducer = peers_ != nullptr && !device_.is_cpu() ? "nccl" : reducer_.Format(),
          .attention = attention ? std::string(Name(*attention)) : "",
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
  bool launches = process.processes > 0 || Against() == "processes";
  std::optional<SignalGate> gate;
  std::optional<SetupGuard> setup;
  if (launches) setup.emplace(gate.emplace());
  Verification verification(*this, streams);
  Status prepared =
      verification.Prepare(launches ? std::optional(process.processes) : std::nullopt);
  if (!prepared.ok()) return Report(prepared.diagnostics(), streams);
  Status reference = launches ? verification.CheckReference() : verification.StartReference();
  if (!reference.ok()) return Report(reference.diagnostics(), streams);
  setup.reset();
  if (launches) return RunOnProcesses(verification.ranks(), process, *gate, streams).code;
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
