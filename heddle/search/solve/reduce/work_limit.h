// Limits the work of a search, which then returns the best result so far. Work is counted, not
// measured: the same problem gives the same answer on every machine and under any load. Time limits
// are opt-in.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "heddle/core/base/host.h"

namespace heddle::search {

// An amount of work, and of time. A unit of work is the time of reading one matrix entry; other
// work counts in multiples of it.
struct WorkAmount {
  uint64_t work = UINT64_MAX;
  // Seconds by the clock, which is checked from time to time.
  double seconds = HUGE_VAL;

  // Work per second of one core of a server of 2020, so that users can think in seconds.
  // `heddle-auto-bench` measures it: proofs for Llama 3 405B on 32 x 8 and Qwen 3 30B-A3B on 8 x 8
  // reach 0.35e9 and 0.4e9; searches in large matrices (1B on 2 x 4 x 8) reach 0.6e9.
  static constexpr double kWorkPerSecond = 5e8;
  // Returns the work of this number of seconds, however long it takes on this machine.
  static WorkAmount Work(double seconds) {
    return {static_cast<uint64_t>(std::clamp(seconds * kWorkPerSecond, 0.0, 1e18))};
  }
  static WorkAmount Clock(double seconds) { return {UINT64_MAX, seconds}; }
};

// The remaining work. Copies share it.
class WorkLimit {
 public:
  // Unlimited.
  WorkLimit() = default;
  explicit WorkLimit(const WorkAmount& work) : WorkLimit(work, nullptr) {}

  // Returns a share of the remaining work, at least `least`. Spending it also spends from this
  // limit.
  WorkLimit Part(double share, uint64_t least = 0) const {
    if (!state_) return {};
    auto work = static_cast<uint64_t>(share * static_cast<double>(state_->left));
    return WorkLimit({std::max(work, least), share * (state_->end - Now())}, state_);
  }

  void Spend(uint64_t work) const {
    for (State* state = state_.get(); state != nullptr; state = state->whole.get()) {
      state->left -= std::min(state->left, work);
      state->unseen += work;
      if (state->unseen < kLook) continue;
      state->unseen = 0;
      PollHost();
      if (state->end != HUGE_VAL && Now() >= state->end) state->left = 0;
    }
  }
  bool Spent() const { return state_ && state_->left == 0; }
  // Returns the remaining share of the whole limit.
  double ShareLeft() const {
    if (!state_) return 1;
    double share = static_cast<double>(state_->left) / static_cast<double>(state_->given.work);
    if (state_->end == HUGE_VAL) return share;
    return std::min(share, (state_->end - Now()) / state_->given.seconds);
  }

 private:
  // Work between two checks of the clock, about a millisecond.
  static constexpr uint64_t kLook = 1'000'000;

  struct State {
    WorkAmount given;
    uint64_t left;
    double end;
    uint64_t unseen;
    // The limit that this one is a part of.
    std::shared_ptr<State> whole;
  };

  // In seconds.
  static double Now() {
    using std::chrono::duration;
    return duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  WorkLimit(const WorkAmount& given, std::shared_ptr<State> whole)
      : state_(std::make_shared<State>(
            State{given, given.work, Now() + given.seconds, 0, std::move(whole)})) {
    if (given.seconds <= 0) state_->left = 0;
  }

  std::shared_ptr<State> state_;
};

}  // namespace heddle::search
