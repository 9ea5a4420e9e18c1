// Signals that ask a run to end: SIGTERM, which schedulers send, and SIGINT, which a terminal sends.
//
// The first one is remembered, so that the run can save and end in order. A second SIGINT ends the process at once, as if nobody
// listened.
#pragma once

#include <csignal>

namespace heddle::run {

class StopSignals {
 public:
  // One object at a time.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came; 0 if none did.
  int came() const;

 private:
  struct sigaction before_[2];
};

}  // namespace heddle::run
