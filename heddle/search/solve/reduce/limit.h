// When to stop and hand back the best that is known: when so much work is done. Time decides only where somebody asks for that, so that the
// same problem gives the same answer on every machine, however busy it is.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "heddle/core/base/host.h"

namespace heddle::search {

// A unit of work is an entry of a matrix that is read once. Everything else counts as many as take about as long.
struct Allowance {
  uint64_t work = UINT64_MAX;
  // By the clock, which is asked now and then.
  double seconds = HUGE_VAL;

  // What one core of a server of 2020 does in a second, so that people may think in seconds. `heddle-auto-bench` compares: proofs for Llama 3 405B on
  // 32 x 8 and Qwen 3 30B-A3B on 8 x 8 come to 0.35e9 and 0.4e9, searches in large matrices (1B on 2 x 4 x 8) to 0.6e9.
  static constexpr double kWorkPerSecond = 5e8;
  // The work of so many seconds, however long that takes here.
  static Allowance Work(double seconds) {
    return {static_cast<uint64_t>(std::clamp(seconds * kWorkPerSecond, 0.0, 1e18))};
  }
  static Allowance Clock(double seconds) { return {UINT64_MAX, seconds}; }
};

// Copies share what is left.
class Limit {
 public:
  // None.
  Limit() = default;
  explicit Limit(const Allowance& allowance) : Limit(allowance, nullptr) {}

  // A share of what is left, and so much work at least. What is spent of it is spent of this, too.
  Limit Part(double share, uint64_t least = 0) const {
    if (!state_) return {};
    auto work = static_cast<uint64_t>(share * static_cast<double>(state_->left));
    return Limit({std::max(work, least), share * (state_->end - Now())}, state_);
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
  // The share of all of it that is left.
  double ShareLeft() const {
    if (!state_) return 1;
    double share = static_cast<double>(state_->left) / static_cast<double>(state_->given.work);
    if (state_->end == HUGE_VAL) return share;
    return std::min(share, (state_->end - Now()) / state_->given.seconds);
  }

 private:
  // Work from one look at the clock to the next: about a millisecond.
  static constexpr uint64_t kLook = 1'000'000;

  struct State {
    Allowance given;
    uint64_t left;
    double end;
    uint64_t unseen;
    // What this is a part of.
    std::shared_ptr<State> whole;
  };

  // In seconds.
  static double Now() {
    using std::chrono::duration;
    return duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  Limit(const Allowance& given, std::shared_ptr<State> whole)
      : state_(std::make_shared<State>(
            State{given, given.work, Now() + given.seconds, 0, std::move(whole)})) {
    if (given.seconds <= 0) state_->left = 0;
  }

  std::shared_ptr<State> state_;
};

}  // namespace heddle::search
