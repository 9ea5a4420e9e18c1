#include "heddle/price/sim/timeline/stepper.h"

namespace heddle::price {
namespace {
// Slowdowns are in thousandths.
constexpr int64_t kWhole = 1000;
}  // namespace

void Stepper::Compute(Nanos work) {
  engine_.AdvanceTo(time_);
  while (work.value > 0 && engine_.busy()) {
    int64_t pace = kWhole + slowdown_;
    Nanos needed{(work * pace).value / kWhole + ((work * pace).value % kWhole != 0)};
    Nanos next = engine_.NextEvent();
    if (needed <= next - time_) {
      time_ += needed;
      return;
    }
    work -= {((next - time_) * kWhole).value / pace};
    time_ = next;
    engine_.AdvanceTo(time_);
  }
  time_ += work;
}

}  // namespace heddle::price
