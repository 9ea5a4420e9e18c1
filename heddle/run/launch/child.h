// Child: one process of a job, and its output.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "heddle/core/base/result.h"

namespace heddle::run {

// Forwards one output stream of a process, line by line.
class ChildOutput {
 public:
  // Writes lines to the descriptor `to`, each with `prefix`. With an empty prefix, forwards bytes
  // as they arrive.
  ChildOutput(int from, int to, std::string prefix)
      : from_(from), to_(to), prefix_(std::move(prefix)) {}

  // The descriptor to read from; -1 after the end of the output.
  int fd() const { return from_; }
  // Forwards the available bytes. Never blocks on reading.
  void Forward();
  // Forwards the remaining bytes, and closes the descriptor.
  void Finish();

 private:
  void WriteLines(std::string_view bytes);
  void Close();

  int from_;
  int to_;
  std::string prefix_;
  // A line whose end has not arrived yet.
  std::string open_line_;
};

struct Child {
  int64_t rank = 0;
  pid_t pid = -1;
  bool running = true;
  std::vector<ChildOutput> outputs;
};

// Starts a program with exactly this environment (`NAME=value`). It runs in its own process group,
// so a terminal's signals reach it only through the launcher. Standard input is empty. The program
// is killed when this thread ends.
Result<Child> StartChild(int64_t rank, const std::string& program,
                         const std::vector<std::string>& args,
                         const std::vector<std::string>& environment);

}  // namespace heddle::run
