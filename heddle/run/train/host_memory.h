// Memory of this machine that this process can use.
#pragma once

#include <optional>

#include "heddle/core/base/units.h"

namespace heddle::run {

// Unset values are unknown.
struct HostMemory {
  // Total and free memory, within the limit of the control group.
  std::optional<Bytes> total;
  std::optional<Bytes> available;
};
HostMemory ReadHostMemory();

// Returns the peak resident memory of this process.
std::optional<Bytes> PeakResident();

}  // namespace heddle::run
