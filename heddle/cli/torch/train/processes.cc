#include "heddle/cli/torch/train/processes.h"

#include <cstring>
#include <ostream>

#include "heddle/run/runtime/process/peer_address.h"
#include "heddle/run/runtime/process/store.h"

namespace heddle {
namespace {

constexpr std::string_view kFlag = "--nproc";

// This command line for each rank.
std::vector<std::string> ArgumentsOfRanks() {
  std::vector<std::string> args;
  bool skip = false;
  for (const std::string& arg : run::TheseArguments()) {
    bool given = arg == kFlag;
    if (!skip && !given && !arg.starts_with(std::string(kFlag) + "=")) args.push_back(arg);
    skip = given;
  }
  return args;
}

}  // namespace

void ProcessFlags::Declare(Flags& flags) {
  flags.Option(
      kFlag, processes,
      "start N processes on this machine, one per rank, like torchrun (0: run all ranks in "
      "this process)",
      {.least = 0, .most = 4096});
  flags.Option("--runtime.timeout", timeout, "seconds that processes wait for each other",
               {.least = 1});
}

ProcessesEnd RunOnProcesses(int64_t ranks, const ProcessFlags& flags, const run::SignalGate& gate,
                            const Streams& streams) {
  Result<run::OwnStore> store = run::OpenStore(flags.Timeout());
  if (!store.ok()) return {.code = Report(store.diagnostics(), streams)};
  run::Job job{.program = run::ThisProgram(),
               .args = ArgumentsOfRanks(),
               .processes = ranks,
               .environment = {{"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", std::to_string(store->port)},
                               {kLaunchedVariable, "1"},
                               // The name with which torchrun announces that it has the store.
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
  Result<run::JobEnd> end = run::RunJob(job, gate);
  if (!end.ok()) return {.code = Report(end.diagnostics(), streams)};
  bool stopped = end->stopped != 0;
  if (end->ok()) return {.stopped = stopped};
  auto name = [](int signal) { return fmt::format("signal {} ({})", signal, ::strsignal(signal)); };
  // Ranks that train save when they get the signal. Others exit.
  if (stopped)
    streams.err << fmt::format("{} stopped the job before its ranks could save and exit\n",
                               name(end->stopped));
  if (end->signal != 0) {
    if (end->signal != end->stopped)
      streams.err << fmt::format("rank {} was killed by {}\n", end->rank, name(end->signal));
    return {.code = ExitCode::kFault, .stopped = stopped};
  }
  streams.err << fmt::format("rank {} exited with code {}\n", end->rank, end->code);
  bool known = end->code <= static_cast<int>(ExitCode::kFault);
  return {.code = known ? static_cast<ExitCode>(end->code) : ExitCode::kFault, .stopped = stopped};
}

Status CheckNotRank() {
  HEDDLE_TRY(std::optional<run::PeerAddress> address, run::PeerAddress::FromEnvironment());
  if (!address) return Done{};
  return Error(
      Diag::kUsage,
      "--nproc starts ranks, but RANK is set: this process already is a rank; remove one of them");
}

}  // namespace heddle
