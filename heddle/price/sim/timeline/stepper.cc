#include "heddle/price/sim/timeline/stepper.h"

namespace heddle::price {

void Stepper::Compute(Nanos work) {
  engine_.AdvanceTo(time_);
  while (work.value > 0 && engine_.busy()) {
    int64_t pace = SimOptions::kWhole + slowdown_;
    Nanos needed{(work * pace).value / SimOptions::kWhole +
                 ((work * pace).value % SimOptions::kWhole != 0)};
    Nanos next = engine_.NextEvent();
    if (needed <= next - time_) {
      time_ += needed;
      return;
    }
    work -= {((next - time_) * SimOptions::kWhole).value / pace};
    time_ = next;
    engine_.AdvanceTo(time_);
  }
  time_ += work;
}

}  // namespace heddle::price
