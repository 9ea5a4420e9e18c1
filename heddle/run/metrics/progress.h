// Progress of long work as one line on a terminal: `step 3 of 25 [##......] 12 s left`. Prints
// nothing elsewhere.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "heddle/core/base/clock.h"

namespace heddle::run {

// Whether this is standard error, and a terminal.
bool IsErrorTerminal(const std::ostream& stream);

// Returns `step 3 of 25 [##......] 1 min 12 s left`, if the steps after `begin` took `seconds`.
std::string ProgressLine(const std::string& what, int64_t begin, int64_t done, int64_t all,
                         double seconds);

class Progress {
 public:
  // `begin` steps are already done and do not count in the rate.
  Progress(std::ostream& stream, std::string what, int64_t all, int64_t begin = 0);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(int64_t done);
  // Erases the line.
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
