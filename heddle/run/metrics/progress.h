// Progress of long work, on a terminal: one line that is written over, `step 3 of 25 [##......] 12 s left`. Elsewhere nothing.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "heddle/core/base/clock.h"

namespace heddle::run {

// Whether this is standard error, and a terminal.
bool IsErrorTerminal(const std::ostream& stream);

// `step 3 of 25 [##......] 1 min 12 s left`, after `seconds` for the steps from `begin` on.
std::string ProgressLine(const std::string& what, int64_t begin, int64_t done, int64_t all,
                         double seconds);

class Progress {
 public:
  // What was done before, `begin`, took no time.
  Progress(std::ostream& stream, std::string what, int64_t all, int64_t begin = 0);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(int64_t done);
  // Takes the line away.
  void Clear();

 private:
  std::ostream& stream_;
  std::string what_;
  int64_t all_;
  int64_t begin_;
  bool terminal_;
  bool shown_ = false;
  Clock clock_;
};

}  // namespace heddle::run
