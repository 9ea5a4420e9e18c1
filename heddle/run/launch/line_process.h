// LineProcess: starts a program and reads its standard output line by line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "heddle/core/base/result.h"

namespace heddle::run {

class LineProcess {
 public:
  // Starts a program, found as a shell finds it. Its standard input is empty; its standard error
  // goes to `error_file`. Fails if the program cannot be started.
  static Result<std::unique_ptr<LineProcess>> Start(const std::vector<std::string>& command,
                                                    const std::string& error_file);
  // Ends the program if it still runs.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Returns the next line without its end. Blocks; nullopt when the program has closed its output.
  std::optional<std::string> ReadLine();
  // Waits for the end. Returns the exit code, or 128 + signal number, as shells do.
  int Wait();

 private:
  LineProcess(pid_t pid, int from) : pid_(pid), from_(from) {}

  pid_t pid_;
  int from_;
  std::string buffer_;
  std::optional<int> code_;
};

}  // namespace heddle::run
