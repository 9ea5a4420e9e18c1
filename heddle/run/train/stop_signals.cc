#include "heddle/run/train/stop_signals.h"

#include <atomic>
#include <iterator>

namespace heddle::run {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT};
std::atomic<int> came_first = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes to it");

void Remember(int signal) {
  int none = 0;
  if (came_first.compare_exchange_strong(none, signal) || signal != SIGINT) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

StopSignals::StopSignals() {
  came_first = 0;
  struct sigaction action {};
  action.sa_handler = Remember;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

int StopSignals::came() const { return came_first; }

}  // namespace heddle::run
