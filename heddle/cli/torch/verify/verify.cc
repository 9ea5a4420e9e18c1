// heddle verify: trains a graph on ranks and the same job in another way, and compares every bit.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/api/verify.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/cli/torch/parallel_flags.h"
#include "heddle/cli/torch/train/job_flags.h"
#include "heddle/cli/torch/train/processes.h"
#include "heddle/cli/torch/train/train_flags.h"
#include "heddle/cli/torch/verify/verify_report.h"
#include "heddle/run/metrics/progress.h"

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
  VerificationOptions Options() const;
  // Eager training cannot follow a plan from a file.
  std::string Against() const {
    bool chosen = parallel.plan_file.empty() || model.given("--against");
    return chosen ? against : "clean";
  }
};

// Prints the progress and the report.
class VerifyScreen final : public VerifyObserver {
 public:
  VerifyScreen(const VerifyCommand& command, const Streams& streams)
      : command_(command), streams_(streams), progress_(streams.err, "step", command.train.steps) {}

  void Note(const std::string& line) override { streams_.err << line << "\n" << std::flush; }
  void Compiled(const compile::CompileReport& report) override {
    command_.compile.Print(report, streams_);
    command_.compile.PrintNotes(report, streams_);
  }
  void Compared(const Verification& run, const run::StepRow& row) override {
    progress_.Clear();
    if (!command_.json) {
      VerifiedJob job = JobOf(run);
      if (row.step == 1) streams_.out << FormatHead(job);
      streams_.out << FormatStep(job, row) << std::flush;
    }
    progress_.Show(row.step);
  }
  void Ended(const Verification& run, const run::VerifyReport& report) override {
    progress_.Clear();
    if (command_.json) {
      PrintJson(ToJson(JobOf(run), report), streams_);
    } else {
      streams_.out << "\n" << FormatEnd(JobOf(run), report);
    }
  }
  void Failed(const Diagnostics& diagnostics) override {
    progress_.Clear();
    Report(diagnostics, streams_);
    has_failed_ = true;
  }
  bool has_failed() const { return has_failed_; }

 private:
  // Flags name pipelines as the user does.
  VerifiedJob JobOf(const Verification& run) const {
    VerifiedJob job = run.Job();
    job.pipeline = command_.compile.PipelineName(run.step().plan.decisions);
    return job;
  }

  const VerifyCommand& command_;
  const Streams& streams_;
  run::Progress progress_;
  bool has_failed_ = false;
};

VerificationOptions VerifyCommand::Options() const {
  return {.model = model,
          .parallel = parallel,
          .compile =
              [this](const compile::Plan& plan) { return compile.Job(plan, /*want_text=*/false); },
          .optimization = train,
          .loop = steps,
          .against = Against(),
          .python = python,
          .timeout = process.Timeout(),
          .values = values};
}

// Compiles the job to find its mistakes, and starts one process per rank.
ExitCode RunOnRanks(const VerificationOptions& options, const ProcessFlags& process,
                    VerifyScreen& screen, const Streams& streams) {
  run::SignalGate gate;
  std::optional<run::SetupGuard> setup(gate);
  Verification verification(options, screen);
  Status prepared = verification.Prepare(process.processes);
  if (prepared.ok()) prepared = verification.CheckReference();
  if (!prepared.ok()) return Report(prepared.diagnostics(), streams);
  setup.reset();
  return RunOnProcesses(verification.ranks(), process, gate, streams).code;
}

ExitCode VerifyCommand::Run(const Streams& streams) const {
  Status outputs = CheckOneOutput({{"the hashes", train.hashes == "-"}, {"the report", true}});
  if (!outputs.ok()) return Report(outputs.diagnostics(), streams);
  Result<std::optional<run::PeerAddress>> address = run::PeerAddress::FromEnvironment();
  if (!address.ok()) return Report(address.diagnostics(), streams);
  VerificationOptions options = Options();
  VerifyScreen screen(*this, streams);
  if (process.processes > 0) {
    Status alone = CheckNotRank();
    if (!alone.ok()) return Report(alone.diagnostics(), streams);
  }
  bool launches = process.processes > 0 || (options.against == "processes" && !*address);
  if (launches) return RunOnRanks(options, process, screen, streams);
  Result<run::VerifyReport> report = api::Verify(options, screen);
  if (!report.ok())
    return screen.has_failed() ? ExitCode::kFault : Report(report.diagnostics(), streams);
  if (report->differs()) return ExitCode::kDiffers;
  return report->finite ? ExitCode::kDone : ExitCode::kFault;
}

}  // namespace

void AddVerify(CommandSet& commands) { commands.Add<VerifyCommand>(); }

}  // namespace heddle
