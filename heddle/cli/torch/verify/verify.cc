// heddle verify: trains a graph on ranks and the same job in another way, and compares every bit.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/api/verification.h"
#include "heddle/cli/step/compile_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/job_flags.h"
#include "heddle/cli/torch/train/processes.h"
#include "heddle/cli/torch/verify/verify_report.h"
#include "heddle/run/metrics/progress.h"

namespace heddle {
namespace {

struct VerifyCommand {
  static constexpr const char* kName = "verify";
  static constexpr const char* kNote =
      "Trains the compiled graph on all ranks of the mesh, in this process or in one per rank, and "
      "the same job in another way. After every step the loss and every rank's gradients, moments "
      "and parameters must have the same bits. At the first difference it prints the tensor, the "
      "node and the pass that it came from, and exits with code 2.";
  static constexpr const char* kExamples =
      "heddle verify --model=llama3 --parallelism.data_parallel_shard_degree=4 "
      "--training.steps=3\n"
      "heddle verify --parallelism.tensor_parallel_degree=2 --against=processes --nproc=2";

  // Complete after Options().
  VerificationOptions options;
  CompileFlags compile;
  ProcessFlags process;
  bool json = false;
  std::string job;
  // For comparing flags with those of other ranks.
  std::string values;

  void Declare(Flags& flags) {
    // The same default job as `train`.
    options.model.seq_len = 256;
    DeclareStep(flags, options.model);
    DeclareParallelism(flags, options.parallel);
    compile.Declare(flags);
    DeclareTraining(flags, options.optimization);
    DeclareLoop(flags, options.loop);
    process.Declare(flags);
    flags.Section("Comparison");
    flags.Option(
        "--against", options.against,
        "run to compare with: eager (the same training without a graph), pytorch (PyTorch's "
        "own FSDP2 and tensor parallelism, one process per rank), none, processes (the same "
        "graph with one process per rank), or a pipeline, written as for --compile.passes; "
        "with --plan, clean unless given");
    flags.Option("--python=PATH", options.python, "Python that has torch, for --against=pytorch");
    flags.Switch("--json", json, "print the report as JSON");
    flags.Config(job);
    flags.Values(values);
  }
  Result<ExitCode> Run(const Streams& streams) const;
  VerificationOptions Options() const;
};

// Prints the progress and the report.
class VerifyScreen final : public VerifyObserver {
 public:
  VerifyScreen(const VerifyCommand& command, const Streams& streams)
      : command_(command),
        streams_(streams),
        progress_(streams.err, "step", command.options.optimization.steps) {}

  void Note(const std::string& line) override { streams_.err << line << "\n" << std::flush; }
  void Compiled(const compile::CompileReport& report) override {
    command_.compile.Print(report, streams_);
    command_.compile.PrintNotes(report, streams_);
  }
  void Compared(const Verification& run, const run::StepRow& row) override {
    progress_.Clear();
    if (!command_.json) {
      VerifiedJob job = run.Job();
      if (row.step == 1) streams_.out << FormatHead(job);
      streams_.out << FormatStep(job, row) << std::flush;
    }
    progress_.Show(row.step);
  }
  void Ended(const Verification& run, const run::VerifyReport& report) override {
    progress_.Clear();
    if (command_.json) {
      PrintJson(ToJson(run.Job(), report), streams_);
    } else {
      streams_.out << "\n" << FormatEnd(run.Job(), report);
    }
  }
  void Failed(const Diagnostics& diagnostics) override {
    progress_.Clear();
    Report(diagnostics, streams_);
    has_failed_ = true;
  }
  bool has_failed() const { return has_failed_; }

 private:
  const VerifyCommand& command_;
  const Streams& streams_;
  run::Progress progress_;
  bool has_failed_ = false;
};

VerificationOptions VerifyCommand::Options() const {
  VerificationOptions complete = options;
  complete.compile = compile;
  complete.timeout = process.Timeout();
  complete.values = values;
  // Eager training cannot follow a plan from a file.
  bool chosen = options.parallel.plan_file.empty() || options.model.given("--against");
  if (!chosen) complete.against = "clean";
  return complete;
}

// Compiles the job to find errors, and starts one process per rank.
Result<ExitCode> RunOnRanks(const VerificationOptions& options, const ProcessFlags& process,
                            VerifyScreen& screen, const Streams& streams) {
  run::SignalGate gate;
  std::optional<run::SetupGuard> setup(gate);
  Verification verification(options, screen);
  HEDDLE_RETURN_IF_ERROR(verification.Prepare(process.processes));
  HEDDLE_RETURN_IF_ERROR(verification.CheckReference());
  setup.reset();
  return RunOnProcesses(verification.ranks(), process, gate, streams).code;
}

Result<ExitCode> VerifyCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(
      CheckOneOutput({{"the hashes", options.optimization.hashes == "-"}, {"the report", true}}));
  HEDDLE_TRY(std::optional<run::PeerAddress> address, run::PeerAddress::FromEnvironment());
  VerificationOptions complete = Options();
  VerifyScreen screen(*this, streams);
  if (process.processes > 0) HEDDLE_RETURN_IF_ERROR(CheckNotRank());
  bool launches = process.processes > 0 || (complete.against == "processes" && !address);
  if (launches) return RunOnRanks(complete, process, screen, streams);
  Result<run::VerifyReport> report = api::Verify(complete, screen);
  if (!report.ok() && !screen.has_failed()) return std::move(report).failure();
  if (!report.ok()) return ExitCode::kFault;
  if (report->differs()) return ExitCode::kDiffers;
  return report->finite ? ExitCode::kDone : ExitCode::kFault;
}

}  // namespace

void AddVerify(CommandSet& commands) { commands.Add<VerifyCommand>(); }

}  // namespace heddle
