// Measurements of a machine: the kernels of a traced step, and the tables of nccl-tests.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/price/cost/comm/group.h"
#include "heddle/price/trace/trace_file.h"

namespace heddle::price {

// Kernels that are priced by the same figures.
enum class KernelClass : uint8_t {
  kProducts,
  kAttention,
  kElements,
  kOptimizer,
  kCollectives,
  kCopies
};
inline constexpr size_t kKernelClassCount = 6;
std::string_view Name(KernelClass kernels);
// `kernel_class`: that of a span (kernel_class.h), or the family of an op.
KernelClass PricedAs(std::string_view kernel_class);

// Time of a traced step by class. Kernels that run at the same time count separately.
struct TracedStep {
  std::array<Nanos, kKernelClassCount> busy{};
  int64_t kernels = 0;
  // Steps in the trace, whose mean this is.
  int64_t steps = 1;
  // The mean length of a step.
  Nanos length;
};

// A table of nccl-tests: the time of a collective by size, as NCCL counts it.
struct NcclTable {
  struct Row {
    Bytes bytes;
    Nanos time;
  };
  CollectiveKind kind = CollectiveKind::kAllReduce;
  GroupShape group;
  // At least two, with increasing bytes.
  std::vector<Row> rows;
};

// Reads a trace (trace_file.h).
Result<TracedStep> ReadTracedStep(std::string text, const std::string& file, TraceWork wanted);

// Whether a text is the output of nccl-tests.
bool IsNcclTable(std::string_view text);
Result<NcclTable> ReadNcclTable(std::string_view text, const std::string& file);

}  // namespace heddle::price
