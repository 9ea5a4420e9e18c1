// Child: one process of a job, and what it writes.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "heddle/core/base/result.h"

namespace heddle::run {

// What a process writes to one of its standard streams, passed on line by line.
class ChildOutput {
 public:
  // Lines go to the descriptor `to`, each behind `prefix`; without a prefix, bytes go there as they come.
  ChildOutput(int from, int to, std::string prefix)
      : from_(from), to_(to), prefix_(std::move(prefix)) {}

  // -1 when there is no more to come.
  int fd() const { return from_; }
  // Passes on what is there. Never blocks on reading.
  void Forward();
  // Passes on what is left, and closes.
  void Finish();

 private:
  void WriteLines(std::string_view bytes);
  void Close();

  int from_;
  int to_;
  std::string prefix_;
  // A line whose end has not come yet.
  std::string open_line_;
};

struct Child {
  int64_t rank = 0;
  pid_t pid = -1;
  bool running = true;
  std::vector<ChildOutput> outputs;
};

// Starts a program with exactly this environment (`NAME=value`), in a process group of its own, so that a terminal's signals reach it
// through the launcher only. Standard input is empty. It is killed when this thread ends.
Result<Child> StartChild(int64_t rank, const std::string& program,
                         const std::vector<std::string>& args,
                         const std::vector<std::string>& environment);

}  // namespace heddle::run
