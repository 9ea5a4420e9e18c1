// Progress of long work, on a terminal: one line on standard error that is written over, `step 3 of 25, 12 s left`.
#pragma once

#include <string>

#include "heddle/base/clock.h"
#include "heddle/cli/cli.h"

namespace heddle {

class Progress {
 public:
  Progress(const Streams& streams, std::string what, int64_t all);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(int64_t done);
  // Takes the line away.
  void Clear();

 private:
  const Streams& streams_;
  std::string what_;
  int64_t all_;
  // Whether standard error is one.
  bool terminal_;
  bool shown_ = false;
  Clock clock_;
};

}  // namespace heddle
