#include "heddle/run/launch/line_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::run {

Result<std::unique_ptr<LineProcess>> LineProcess::Start(const std::vector<std::string>& command,
                                                        const std::string& error_file) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Error(Diag::kLaunch, "cannot make a pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, error_file.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  // Unblocks signals in the program: the launcher blocks them in its own threads only.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> arguments;
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  int error = ::posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return Error(Diag::kLaunch, "cannot start `{}`: {}", command[0], std::strerror(error));
  }
  return std::unique_ptr<LineProcess>(new LineProcess(pid, ends[0]));
}

LineProcess::~LineProcess() {
  if (!code_) ::kill(pid_, SIGTERM);
  ::close(from_);
  Wait();
}

std::optional<std::string> LineProcess::ReadLine() {
  while (true) {
    size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    std::array<char, 1 << 14> bytes{};
    ssize_t count = ::read(from_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    buffer_.append(bytes.data(), static_cast<size_t>(count));
  }
}

int LineProcess::Wait() {
  int status = 0;
  while (!code_) {
    if (::waitpid(pid_, &status, 0) < 0) {
      if (errno == EINTR) continue;
      status = 0;
    }
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return *code_;
}

}  // namespace heddle::run
