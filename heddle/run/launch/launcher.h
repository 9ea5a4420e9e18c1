// Launcher: runs a program once for each rank of a job, on this machine.
//
// Each process has RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in its environment, as with
// torchrun. Standard output of rank 0 is the job's. All other output goes to standard error, each
// line with a prefix such as `[rank 2] `. The launcher forwards signals that ask it to end, and
// JobEnd names them. When a process fails, the others have a grace period to report their errors,
// and are then killed. No process outlives the launcher, however it ends.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

struct Job {
  std::string program;
  std::vector<std::string> args;
  int64_t processes = 1;
  // Added to this process's own environment.
  std::vector<std::pair<std::string, std::string>> environment;
  // Grace period of the other processes after one has failed.
  std::chrono::milliseconds grace{5000};
};

// Blocks signals that end a job while it exists, in this thread and in threads that it starts
// later. The launcher reads them instead. Create it before anything that starts threads.
class SignalGate {
 public:
  SignalGate();
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  // Readable when a signal has arrived; -1 if it could not be created.
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// While it exists, a signal that the gate blocks ends this process, as without the gate. For the
// work between creating the gate and RunJob.
class SetupGuard {
 public:
  explicit SetupGuard(const SignalGate& gate);
  ~SetupGuard();
  SetupGuard(const SetupGuard&) = delete;
  SetupGuard& operator=(const SetupGuard&) = delete;

 private:
  // Readable when the thread must end.
  int done_ = -1;
  std::thread thread_;
};

// How the first failed process ended; all 0 if none failed.
struct JobEnd {
  int64_t rank = 0;
  // Its exit code, or the signal that ended it.
  int code = 0;
  int signal = 0;
  // The first signal that asked the job to end; 0 if none did. Such a job must not be restarted.
  int stopped = 0;

  bool ok() const { return code == 0 && signal == 0; }
};

// Runs the job to its end. Fails if a process cannot be started. If a signal has asked the job to
// end since the gate was created, starts no process and returns as if that signal had ended rank 0.
Result<JobEnd> RunJob(const Job& job, const SignalGate& gate);

// The path of this process's program (empty if unknown), and its command-line arguments.
std::string ThisProgram();
std::vector<std::string> TheseArguments();

}  // namespace heddle::run
