#include "heddle/run/launch/launcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heddle/core/base/text.h"
#include "heddle/run/launch/child.h"

extern char** environ;

namespace heddle::run {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

// Time between asking a process to end and killing it.
constexpr milliseconds kLastWords{1000};

sigset_t Watched() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
  return set;
}

std::vector<std::string> EnvironmentOf(const Job& job, int64_t rank) {
  std::vector<std::pair<std::string, std::string>> own = job.environment;
  own.emplace_back("RANK", std::to_string(rank));
  own.emplace_back("LOCAL_RANK", std::to_string(rank));
  own.emplace_back("WORLD_SIZE", std::to_string(job.processes));
  own.emplace_back("LOCAL_WORLD_SIZE", std::to_string(job.processes));
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text(*entry);
    std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::none_of(own, [&](const auto& pair) { return pair.first == name; }))
      all.emplace_back(text);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  return all;
}

// A running job.
class Running {
 public:
  Running(const Job& job, int signals) : job_(job), signals_(signals) {}
  // Kills the remaining processes: none may outlive the launcher.
  ~Running() {
    Signal(SIGKILL);
    for (Child& child : children_) {
      if (child.running) ::waitpid(child.pid, nullptr, 0);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Records signals that ask the job to end, and forwards them.
  void ReadSignals() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      auto signal = static_cast<int>(info.ssi_signo);
      if (end_.stopped == 0) end_.stopped = signal;
      Signal(signal);
    }
  }
  const JobEnd& end() const { return end_; }

  Status Start() {
    for (int64_t rank = 0; rank < job_.processes; ++rank) {
      HEDDLE_TRY(Child child, StartChild(rank, job_.program, job_.args, EnvironmentOf(job_, rank)));
      children_.push_back(std::move(child));
    }
    return Done{};
  }

  JobEnd Finish() {
    while (AnyRuns()) {
      Wait();
      ReadSignals();
      Reap();
      EndTheRest();
    }
    for (Child& child : children_) {
      for (ChildOutput& output : child.outputs) output.Finish();
    }
    return end_;
  }

 private:
  bool AnyRuns() const {
    return std::ranges::any_of(children_, [](const Child& c) { return c.running; });
  }

  void Signal(int signal) {
    for (const Child& child : children_) {
      if (child.running) ::kill(-child.pid, signal);
    }
  }

  // Waits for an event or the deadline, and forwards output.
  void Wait() {
    std::vector<pollfd> polled{{signals_, POLLIN, 0}};
    std::vector<ChildOutput*> outputs;
    for (Child& child : children_) {
      for (ChildOutput& output : child.outputs) {
        if (output.fd() < 0) continue;
        polled.push_back({output.fd(), POLLIN, 0});
        outputs.push_back(&output);
      }
    }
    int timeout = -1;
    if (deadline_) {
      auto left = std::chrono::ceil<milliseconds>(*deadline_ - std::chrono::steady_clock::now());
      timeout = static_cast<int>(std::max<int64_t>(left.count(), 0));
    }
    ::poll(polled.data(), polled.size(), timeout);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (polled[i + 1].revents != 0) outputs[i]->Forward();
    }
  }

  void Reap() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      JobEnd end{.rank = child.rank,
                 .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                 .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                 .stopped = end_.stopped};
      if (end.ok() || !end_.ok()) continue;
      end_ = end;
      deadline_ = std::chrono::steady_clock::now() + job_.grace;
    }
  }

  // Asks first and kills later. SIGKILL is the only signal that ends a stopped process.
  void EndTheRest() {
    if (!deadline_ || std::chrono::steady_clock::now() < *deadline_) return;
    Signal(asked_ ? SIGKILL : SIGTERM);
    asked_ = true;
    deadline_ = std::chrono::steady_clock::now() + kLastWords;
  }

  const Job& job_;
  int signals_;
  std::vector<Child> children_;
  JobEnd end_;
  // After a failure: when to end the processes that still run.
  std::optional<Time> deadline_;
  bool asked_ = false;
};

}  // namespace

SignalGate::SignalGate() {
  sigset_t set = Watched();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

SignalGate::~SignalGate() {
  if (fd_ >= 0) ::close(fd_);
  sigset_t set = Watched();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

SetupGuard::SetupGuard(const SignalGate& gate) : done_(::eventfd(0, EFD_CLOEXEC)) {
  if (done_ < 0) return;
  thread_ = std::thread([signals = gate.fd(), done = done_] {
    std::array<pollfd, 2> polled{{{signals, POLLIN, 0}, {done, POLLIN, 0}}};
    signalfd_siginfo info{};
    while (::poll(polled.data(), polled.size(), -1) < 0 || polled[1].revents == 0) {
      if (::read(signals, &info, sizeof(info)) != sizeof(info) || info.ssi_signo == SIGCHLD)
        continue;
      // The signal is pending for the whole process; unblocking it ends the process.
      auto signal = static_cast<int>(info.ssi_signo);
      ::signal(signal, SIG_DFL);
      ::kill(::getpid(), signal);
      sigset_t set = Watched();
      ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    }
  });
}

SetupGuard::~SetupGuard() {
  if (done_ < 0) return;
  uint64_t one = 1;
  (void)!::write(done_, &one, sizeof(one));
  thread_.join();
  ::close(done_);
}

Result<JobEnd> RunJob(const Job& job, const SignalGate& gate) {
  if (gate.fd() < 0) return Error(Diag::kLaunch, "cannot read signals: {}", std::strerror(errno));
  Running running(job, gate.fd());
  running.ReadSignals();
  if (int stopped = running.end().stopped; stopped != 0)
    return JobEnd{.signal = stopped, .stopped = stopped};
  HEDDLE_RETURN_IF_ERROR(running.Start());
  return running.Finish();
}

std::string ThisProgram() {
  std::array<char, PATH_MAX> path{};
  ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<size_t>(length)) : "";
}

std::vector<std::string> TheseArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> all;
  for (std::string one; std::getline(file, one, '\0');) all.push_back(one);
  if (!all.empty()) all.erase(all.begin());
  return all;
}

}  // namespace heddle::run
