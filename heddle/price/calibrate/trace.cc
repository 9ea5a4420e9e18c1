#include "heddle/price/calibrate/measurements.h"

namespace heddle::price {
namespace {

constexpr std::string_view kNames[] = {"products",  "attention",   "elements and rows",
                                       "optimizer", "collectives", "copies"};

}  // namespace

std::string_view Name(KernelClass kernels) { return kNames[static_cast<size_t>(kernels)]; }

KernelClass PricedAs(std::string_view kernel_class) {
  if (kernel_class == "matmul") return KernelClass::kProducts;
  if (kernel_class == "attention") return KernelClass::kAttention;
  if (kernel_class == "optimizer") return KernelClass::kOptimizer;
  if (kernel_class == "collective") return KernelClass::kCollectives;
  if (kernel_class == "copy") return KernelClass::kCopies;
  return KernelClass::kElements;
}

Result<TracedStep> ReadTracedStep(std::string text, const std::string& file, TraceWork wanted) {
  HEDDLE_TRY(Trace trace, ParseTrace(std::move(text), file, wanted));
  TracedSteps steps = FindSteps(trace);
  auto count = static_cast<int64_t>(steps.count());
  TracedStep out{.steps = count, .length = steps.step()};
  for (const TraceSpan& span : trace.spans) {
    if (span.begin < steps.edges[0] || span.kernel_class == "wait") continue;
    out.busy[static_cast<size_t>(PricedAs(span.kernel_class))] += span.end - span.begin;
    if (span.kernel_class != "copy") ++out.kernels;
  }
  for (Nanos& busy : out.busy) busy.value /= count;
  out.kernels /= count;
  if (!trace.marked.empty()) {
    Nanos sum;
    for (const TraceMark& mark : trace.marked) sum += mark.end - mark.begin;
    out.length = {sum.value / static_cast<int64_t>(trace.marked.size())};
  }
  return out;
}

}  // namespace heddle::price
