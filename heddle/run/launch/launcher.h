// Launcher: runs a program once for each rank of a job, on this machine.
//
// Each process has RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in its environment, as
// torchrun sets them. Standard output of rank 0 is the job's. Everything else that processes write
// goes to standard error, each line with the prefix `[rank 2] `. Signals that ask this process to
// end are passed on, and JobEnd names them. When a process fails, the others get a while to say
// what they saw, and are then killed. No process outlives this one, however it ends.
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
  // Besides this process's own environment.
  std::vector<std::pair<std::string, std::string>> environment;
  // How long the others may go on when one has failed.
  std::chrono::milliseconds grace{5000};
};

// Signals that end a job are held back while this lives, in this thread and in those that it starts later: the launcher reads them.
// Make it before anything that starts threads.
class SignalGate {
 public:
  SignalGate();
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  // Readable when a signal has come; -1 if it cannot be made.
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// While this lives, a signal that the gate blocks ends this process, as it would without the gate.
// For work between making the gate and RunJob.
class SetupGuard {
 public:
  explicit SetupGuard(const SignalGate& gate);
  ~SetupGuard();
  SetupGuard(const SetupGuard&) = delete;
  SetupGuard& operator=(const SetupGuard&) = delete;

 private:
  // Readable when the thread has to end.
  int done_ = -1;
  std::thread thread_;
};

// How the first process that failed did so; 0 if all are well.
struct JobEnd {
  int64_t rank = 0;
  // What it exited with, or the signal that ended it.
  int code = 0;
  int signal = 0;
  // The first signal that asked the job to end; 0 if none did. Such a job must not start again.
  int stopped = 0;

  bool ok() const { return code == 0 && signal == 0; }
};

// Runs the job to its end. Fails if its processes cannot be started. If a signal has asked the job
// to end since the gate was made, starts none, and returns as if that signal had ended rank 0.
Result<JobEnd> RunJob(const Job& job, const SignalGate& gate);

// The file of this process's program, empty if nobody knows, and what it was given on the command line.
std::string ThisProgram();
std::vector<std::string> TheseArguments();

}  // namespace heddle::run
