#include "heddle/train/exact.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

namespace heddle {

void MakeExact() {
  at::set_num_threads(1);
  at::globalContext().setUserEnabledMkldnn(false);
}

}  // namespace heddle
