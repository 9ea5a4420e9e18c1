// Signals that ask a run to end: SIGTERM, which schedulers send, and SIGINT, which terminals send.
//
// The first signal is recorded, so that the run can save and end in order. A second SIGINT ends the
// process immediately.
#pragma once

#include <csignal>

namespace heddle::run {

class StopSignals {
 public:
  // Only one object may exist at a time.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns the signal that arrived; 0 if none did.
  int came() const;

 private:
  struct sigaction before_[2];
};

}  // namespace heddle::run
