// Memory of this machine, as far as this process may use it.
#pragma once

#include <optional>

#include "heddle/core/base/units.h"

namespace heddle::run {

// None where the system does not say.
struct HostMemory {
  // All there is, and what is not in use; a limit of the control group counts.
  std::optional<Bytes> total;
  std::optional<Bytes> available;
};
HostMemory ReadHostMemory();

// The most that this process had in use at once.
std::optional<Bytes> PeakResident();

}  // namespace heddle::run
