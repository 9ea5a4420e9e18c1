// Ranks as processes: the flags, starting them, and what they tell each other.
//
// A process with RANK in its environment is that rank of a job. `--nproc` starts a job on this machine.
#pragma once

#include <memory>
#include <optional>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags.h"
#include "heddle/ir/mesh.h"
#include "heddle/launch/launcher.h"
#include "heddle/runtime/process/process_transport.h"
#include "heddle/runtime/world.h"
#include "heddle/verify/verify.h"

namespace heddle {

struct ProcessFlags {
  int64_t processes = 0;
  // In seconds.
  int64_t timeout = 60;

  void Declare(Flags& flags);
  std::chrono::milliseconds Timeout() const { return std::chrono::seconds(timeout); }
};

struct ProcessesEnd {
  // That of the first rank that failed.
  ExitCode code = ExitCode::kDone;
  // Whether a signal asked the job to end.
  bool stopped = false;
};
// Runs this command line, without --nproc, once for each rank.
ProcessesEnd RunOnProcesses(int64_t ranks, const ProcessFlags& flags, const SignalGate& gate,
                            const Streams& streams);

// This process as one rank of a job: `prepare` finds the user's mistakes, then all ranks meet and do their work. A fault of this one is
// told to the others.
ExitCode RunAsRank(const PeerAddress& address, const ProcessFlags& flags,
                   const std::function<Status()>& prepare,
                   const std::function<Result<ExitCode>(Peers&)>& work, const Streams& streams);

// Fails unless there is a process for every rank of the mesh.
Status CheckProcesses(int64_t processes, const Mesh& mesh);

// For a world of which this process has one rank.
Result<WorldOptions> OwnRank(Peers& peers, const Module& module, c10::Device device);

// The sums of all, and the difference of the lowest rank that has one.
Share<Comparison> ShareComparison(Peers& peers);
// The one of the lowest rank.
Share<std::optional<NodeFinding>> ShareOrigin(Peers& peers);

}  // namespace heddle
