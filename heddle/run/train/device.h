// Where the ranks of this process compute: on the host or on a GPU, and what memory they have there.
#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::run {

// The host, or the GPU of the rank that has this number on its machine. This process computes there from now on.
Result<c10::Device> OpenDevice(c10::DeviceType type, int64_t local_rank);

// None where nobody says.
struct DeviceMemory {
  // All there is, and what is not in use.
  std::optional<Bytes> total;
  std::optional<Bytes> available;
};
DeviceMemory ReadMemory(c10::Device device);

// What its driver calls it; empty where nobody says.
std::string NameOf(c10::Device device);

// The most that this process had in use at once.
std::optional<Bytes> PeakMemory(c10::Device device);

}  // namespace heddle::run
