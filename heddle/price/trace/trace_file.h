// Traces in Chrome's format: those of PyTorch's profiler, which `heddle train --profile` uses, and
// those of `heddle sim --trace`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::price {

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
  // Whether the spans are kernels and copies of devices.
  bool on_device = false;
  // Steps that PyTorch's profiler marked, as the host ran them.
  std::vector<Nanos> marked;

  // The end of the last span.
  Nanos end() const;
};

enum class TraceWork : uint8_t { kAny, kDevice };

// Reads the work of a trace: kernels and copies of the devices. Without devices, the ops of the
// host that no other op calls, unless only the work of devices is `wanted`. Waits are not work.
Result<Trace> ParseTrace(std::string text, const std::string& file,
                         TraceWork wanted = TraceWork::kAny);
// Reads a file, which may be compressed by gzip.
Result<Trace> ReadTrace(const std::string& path);

// The steps of a trace.
struct TracedSteps {
  // Where each step begins, and where the last one ends.
  std::vector<Nanos> edges;

  size_t count() const { return edges.size() - 1; }
  // The mean time from the begin of a step to that of the next.
  Nanos step() const {
    return Nanos{(edges.back() - edges[0]).value / static_cast<int64_t>(count())};
  }
};
// Finds steps that launch the same work in the same order. Without a repetition, the trace has one
// step, or equal parts for the marks of PyTorch's profiler.
TracedSteps FindSteps(const Trace& trace);

}  // namespace heddle::price
