// LineProcess: a program that this process starts, and whose standard output it reads line by line.
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
  // Looks the program up as a shell does. Standard input is empty; standard error goes to
  // `error_file`. Fails if the program cannot be started.
  static Result<std::unique_ptr<LineProcess>> Start(const std::vector<std::string>& command,
                                                    const std::string& error_file);
  // Ends the program if it still runs.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // The next line, without its end. Blocks; nullopt when the program has closed its output.
  std::optional<std::string> ReadLine();
  // Waits for the end. The exit code, or 128 and the number of the signal, as shells count.
  int Wait();

 private:
  LineProcess(pid_t pid, int from) : pid_(pid), from_(from) {}

  pid_t pid_;
  int from_;
  std::string buffer_;
  std::optional<int> code_;
};

}  // namespace heddle::run
