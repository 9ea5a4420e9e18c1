// Ranks as processes: flags, and starting them.
//
// A process with RANK in its environment is that rank of a job. `--nproc` starts a job on this
// machine.
#pragma once

#include <chrono>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags/flags.h"
#include "heddle/run/launch/launcher.h"

namespace heddle {

struct ProcessFlags {
  int64_t processes = 0;
  // In seconds.
  int64_t timeout = 60;

  void Declare(Flags& flags);
  std::chrono::milliseconds Timeout() const { return std::chrono::seconds(timeout); }
};

struct ProcessesEnd {
  // The exit code of the first rank that failed.
  ExitCode code = ExitCode::kDone;
  // Whether a signal stopped the job.
  bool stopped = false;
};
// Runs this command line, without --nproc, once for each rank.
ProcessesEnd RunOnProcesses(int64_t ranks, const ProcessFlags& flags, const run::SignalGate& gate,
                            const Streams& streams);

// Fails if RANK is set: a rank does not start ranks (--nproc).
Status CheckNotRank();

}  // namespace heddle
