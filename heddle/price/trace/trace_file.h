// Traces in Chrome's format: those of PyTorch's profiler, which `heddle train --profile` uses, and
// those of `heddle sim --trace`.
#pragma once

#include <cstdint>
#include <optional>
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

struct TracedMemory {
  Nanos time;
  Bytes bytes;
};

struct TraceMark {
  std::string name;
  Nanos begin;
  Nanos end;
};

// The process of a trace among those of its job.
struct TracedRank {
  int64_t rank = 0;
  int64_t world_size = 1;
  // Equal for all ranks of a run of `heddle train`; empty for other traces.
  std::string run = {};
};

struct Trace {
  std::string file;
  std::optional<TracedRank> rank = {};
  // A stream of a device, or a thread.
  std::vector<std::string> lanes;
  // In order of begin, which counts from the first. Waits for collectives are spans of the class
  // `wait`.
  std::vector<TraceSpan> spans;
  // The time of the first span on the clock of the machine.
  Nanos origin;
  // Allocated bytes after each change, in order of time.
  std::vector<TracedMemory> memory;
  // Whether the spans are kernels and copies of devices.
  bool on_device = false;
  // Steps that PyTorch's profiler marked, as the host ran them, in order of begin.
  std::vector<TraceMark> marked;

  // The end of the last span.
  Nanos end() const;
  // The most bytes that were allocated; nullopt if the trace does not state allocations.
  std::optional<Bytes> PeakMemory() const;
};

enum class TraceWork : uint8_t { kAny, kDevice };

// Reads the work of a trace: kernels and copies of the devices. Without devices, the ops of the
// host that no other op calls, with the collectives and waits of its process groups, unless only
// the work of devices is `wanted`.
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
// step, or equal parts for the marks of PyTorch's profiler. Without devices, the marks are the
// steps.
TracedSteps FindSteps(const Trace& trace);

}  // namespace heddle::price
