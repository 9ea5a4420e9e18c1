#include "test/attack/watch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heddle/core/base/file.h"

namespace heddle {
namespace {

constexpr const char* kSaid = "said.txt";
constexpr int kCheckMilliseconds = 50;

void Say(int fd, std::string_view line) {
  std::string text(line);
  std::ranges::replace(text, '\n', ' ');
  text += '\n';
  for (size_t at = 0; at < text.size();) {
    ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) std::_Exit(1);
    if (n > 0) at += static_cast<size_t>(n);
  }
  char heard = 0;
  while (::read(fd, &heard, 1) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void RunChild(const std::string& directory, int fd,
                           const std::function<void(const Reporter&)>& work) {
  if (::chdir(directory.c_str()) != 0) std::_Exit(1);
  int said = ::open(kSaid, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ::dup2(said, STDERR_FILENO);
  rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  work([fd](std::string_view line) { Say(fd, line); });
  std::_Exit(0);
}

// Returns the line of the child's output that best explains its end.
std::string LastWords(const std::string& directory) {
  Result<std::string> said = ReadFile(directory + "/" + kSaid);
  if (!said.ok()) return "";
  for (std::string_view mark : {"internal check failed", "SUMMARY: ", "runtime error", "what():"}) {
    size_t at = said->find(mark);
    if (at != std::string::npos) return ": " + said->substr(at, said->find('\n', at) - at);
  }
  return said->empty() ? "" : ": " + said->substr(0, said->find('\n'));
}

class Child {
 public:
  Child(pid_t pid, int fd, const Limits& limits) : pid_(pid), fd_(fd), limits_(limits) {
    Restart();
  }

  // Returns how the child died.
  std::string Run(const std::function<void(std::string_view)>& hear) {
    pollfd poll{fd_, POLLIN, 0};
    std::string open;
    char buffer[4096];
    for (;;) {
      int ready = ::poll(&poll, 1, kCheckMilliseconds);
      if (std::string broken = ready == 0 ? BrokenLimit() : ""; !broken.empty()) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        return broken;
      }
      if (ready <= 0) continue;
      ssize_t n = ::read(fd_, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Death();
      open.append(buffer, static_cast<size_t>(n));
      for (size_t end = open.find('\n'); end != std::string::npos; end = open.find('\n')) {
        hear(std::string_view(open).substr(0, end));
        open.erase(0, end + 1);
        Restart();
        (void)!::write(fd_, "", 1);
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  double CpuSeconds() const {
    clockid_t clock{};
    timespec time{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  int64_t ResidentBytes() const {
    long long pages = 0;
    std::FILE* file = std::fopen(fmt::format("/proc/{}/statm", pid_).c_str(), "r");
    if (file == nullptr) return 0;
    if (std::fscanf(file, "%*d %lld", &pages) != 1) pages = 0;  // NOLINT: our own kernel's text
    std::fclose(file);
    return pages * ::sysconf(_SC_PAGESIZE);
  }
  void Restart() {
    cpu_ = CpuSeconds();
    began_ = Clock::now();
    if (!base_bytes_) base_bytes_ = ResidentBytes();
  }
  std::string BrokenLimit() const {
    if (CpuSeconds() - cpu_ > limits_.cpu_seconds)
      return fmt::format("takes more than {} s", limits_.cpu_seconds);
    if (std::chrono::duration<double>(Clock::now() - began_).count() > limits_.seconds)
      return fmt::format("waits for more than {} s", limits_.seconds);
    if (ResidentBytes() - *base_bytes_ > limits_.bytes)
      return fmt::format("takes more than {} MiB", limits_.bytes >> 20);
    return "";
  }
  std::string Death() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
    return WIFSIGNALED(status) ? fmt::format("dies of signal {}", WTERMSIG(status))
                               : fmt::format("dies with code {}", WEXITSTATUS(status));
  }

  pid_t pid_;
  int fd_;
  const Limits& limits_;
  double cpu_ = 0;
  Clock::time_point began_;
  std::optional<int64_t> base_bytes_;
};

}  // namespace

std::string Watch(const std::string& directory, const Limits& limits,
                  const std::function<void(const Reporter&)>& work,
                  const std::function<void(std::string_view)>& hear) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return "cannot be started: no socket";
  pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    RunChild(directory, ends[1], work);
  }
  ::close(ends[1]);
  std::string death =
      pid < 0 ? "cannot be started: no process" : Child(pid, ends[0], limits).Run(hear);
  ::close(ends[0]);
  return death.empty() ? "" : death + LastWords(directory);
}

}  // namespace heddle
