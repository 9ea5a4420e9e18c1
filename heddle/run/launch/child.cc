#include "heddle/run/launch/child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace heddle::run {
namespace {

// An unfinished line is forwarded in pieces of this size.
constexpr size_t kLongestLine = 1 << 16;

void WriteAll(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(to, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    // The reader has closed the pipe. The job continues without it.
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

struct Pipe {
  int read = -1;
  int write = -1;

  bool Open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return ::fcntl(read, F_SETFL, O_NONBLOCK) == 0;
  }
  void Close() const {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
};

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec, so it makes async-signal-safe calls only.
[[noreturn]] void Become(pid_t parent, const Pipe& out, const Pipe& err, char* const* args,
                         char* const* environment) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  int in = ::open("/dev/null", O_RDONLY);
  if (in >= 0) ::dup2(in, STDIN_FILENO);
  ::dup2(out.write, STDOUT_FILENO);
  ::dup2(err.write, STDERR_FILENO);
  ::execve(args[0], args, environment);
  constexpr char kMessage[] = "cannot be started\n";
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(127);
}

}  // namespace

void ChildOutput::Close() {
  if (from_ >= 0) ::close(from_);
  from_ = -1;
}

void ChildOutput::WriteLines(std::string_view bytes) {
  if (prefix_.empty()) {
    WriteAll(to_, bytes);
    return;
  }
  while (!bytes.empty()) {
    size_t end = bytes.find('\n');
    std::string_view line = bytes.substr(0, end == std::string_view::npos ? end : end + 1);
    open_line_ += line;
    bytes.remove_prefix(line.size());
    if (end == std::string_view::npos && open_line_.size() < kLongestLine) return;
    if (open_line_.back() != '\n') open_line_ += '\n';
    WriteAll(to_, prefix_ + open_line_);
    open_line_.clear();
  }
}

void ChildOutput::Forward() {
  std::array<char, 1 << 14> buffer{};
  while (from_ >= 0) {
    ssize_t count = ::read(from_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      Close();
      return;
    }
    WriteLines({buffer.data(), static_cast<size_t>(count)});
  }
}

void ChildOutput::Finish() {
  Forward();
  if (!open_line_.empty()) WriteLines("\n");
  Close();
}

Result<Child> StartChild(int64_t rank, const std::string& program,
                         const std::vector<std::string>& args,
                         const std::vector<std::string>& environment) {
  Pipe out;
  Pipe err;
  std::vector<std::string> all{program};
  all.insert(all.end(), args.begin(), args.end());
  std::vector<char*> arg_pointers = Pointers(all);
  std::vector<char*> environment_pointers = Pointers(environment);
  pid_t parent = ::getpid();
  pid_t pid = -1;
  if (out.Open() && err.Open()) pid = ::fork();
  if (pid == 0) Become(parent, out, err, arg_pointers.data(), environment_pointers.data());
  if (pid < 0) {
    Failure failure =
        Error(Diag::kLaunch, "cannot start the process of rank {}: {}", rank, std::strerror(errno));
    out.Close();
    err.Close();
    return failure;
  }
  // The child makes the same call. Whichever runs first, signals reach the group from here on.
  ::setpgid(pid, pid);
  ::close(out.write);
  ::close(err.write);
  Child child{.rank = rank, .pid = pid, .running = true, .outputs = {}};
  std::string prefix = fmt::format("[rank {}] ", rank);
  child.outputs.emplace_back(out.read, rank == 0 ? STDOUT_FILENO : STDERR_FILENO,
                             rank == 0 ? "" : prefix);
  child.outputs.emplace_back(err.read, STDERR_FILENO, prefix);
  return child;
}

}  // namespace heddle::run
