// The device of this process, host or GPU, and its memory.
#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::run {

// Selects the device of the rank with number `local_rank` on its machine. Later work of this
// process runs there.
Result<c10::Device> OpenDevice(c10::DeviceType type, int64_t local_rank);

// Unset values are unknown.
struct DeviceMemory {
  // Total and free memory.
  std::optional<Bytes> total;
  std::optional<Bytes> available;
};
DeviceMemory ReadMemory(c10::Device device);

// Returns the driver's name of the device; empty if unknown.
std::string NameOf(c10::Device device);

// Returns the peak memory of this process on the device.
std::optional<Bytes> PeakMemory(c10::Device device);

}  // namespace heddle::run
