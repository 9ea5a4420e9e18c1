#include "heddle/run/metrics/progress.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmt/core.h>
#include <unistd.h>

namespace heddle::run {
namespace {

constexpr int64_t kBarWidth = 24;

// Formats a duration as `12 s`, `3 min 05 s` or `2 h 07 min`.
std::string FormatLeft(double seconds) {
  // The rate of the first moments can be arbitrarily wrong.
  auto s = static_cast<int64_t>(std::clamp(std::ceil(seconds), 0.0, 1e9));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

}  // namespace

bool IsErrorTerminal(const std::ostream& stream) {
  return &stream == &std::cerr && ::isatty(STDERR_FILENO) == 1;
}

std::string ProgressLine(const std::string& what, int64_t begin, int64_t done, int64_t all,
                         double seconds) {
  double share = all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 1;
  auto filled = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(kBarWidth));
  std::string bar(filled, '#');
  bar.resize(kBarWidth, '.');
  std::string line = fmt::format("{} {} of {} [{}]", what, done, all, bar);
  if (done <= begin) return line;
  double left = seconds / static_cast<double>(done - begin) * static_cast<double>(all - done);
  return line + fmt::format(" {} left", FormatLeft(left));
}

Progress::Progress(std::ostream& stream, std::string what, int64_t all, int64_t begin)
    : stream_(stream),
      what_(std::move(what)),
      all_(all),
      begin_(begin),
      terminal_(IsErrorTerminal(stream)) {}

void Progress::Show(int64_t done) {
  if (!terminal_) return;
  stream_ << "\r\x1b[K" << ProgressLine(what_, begin_, done, all_, Seconds(clock_.Elapsed()))
          << std::flush;
  shown_ = true;
}

void Progress::Clear() {
  if (shown_) stream_ << "\r\x1b[K" << std::flush;
  shown_ = false;
}

}  // namespace heddle::run
