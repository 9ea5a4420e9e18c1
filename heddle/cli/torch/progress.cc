#include "heddle/cli/torch/progress.h"

#include <iostream>

#include <unistd.h>

namespace heddle {

Progress::Progress(const Streams& streams, std::string what, int64_t all)
    : streams_(streams),
      what_(std::move(what)),
      all_(all),
      terminal_(&streams.err == &std::cerr && ::isatty(STDERR_FILENO) == 1) {}

void Progress::Show(int64_t done) {
  if (!terminal_) return;
  double left =
      Seconds(clock_.Elapsed()) / static_cast<double>(done) * static_cast<double>(all_ - done);
  streams_.err << fmt::format("\r\x1b[K{} {} of {}, {:.0f} s left", what_, done, all_, left)
               << std::flush;
  shown_ = true;
}

void Progress::Clear() {
  if (shown_) streams_.err << "\r\x1b[K" << std::flush;
  shown_ = false;
}

}  // namespace heddle
