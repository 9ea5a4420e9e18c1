// Traces in Chrome's format: those of PyTorch's profiler, which `heddle train --profile` uses, and
// those of `heddle sim --trace`.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle {

struct TraceSpan {
  std::string name;
  std::string kernel_class;
  // An index into Trace::lanes.
  size_t lane = 0;
  Nanos begin;
  Nanos end;
};

struct Trace {
  std::string file;
  // A stream of a device, or a thread.
  std::vector<std::string> lanes;
  // In order of begin, which counts from the first.
  std::vector<TraceSpan> spans;
};

// Reads the work of a trace: kernels and copies of the devices. Without devices, the ops of the
// host that no other op calls. Waits are not work.
Result<Trace> ReadTrace(const std::string& path);

}  // namespace heddle
