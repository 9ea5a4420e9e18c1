#include <algorithm>
#include <cctype>
#include <set>

#include "heddle/core/base/json.h"
#include "heddle/price/calibrate/measurements.h"
#include "heddle/price/cost/cluster/rate.h"

namespace heddle::price {
namespace {

constexpr double kTraceMicro = 1000;
constexpr std::string_view kNames[] = {"products",  "attention",   "elements and rows",
                                       "optimizer", "collectives", "copies"};

// The class of a kernel, by words that libraries use in its name.
KernelClass ClassOf(std::string_view category, std::string_view name) {
  if (category != "kernel") return KernelClass::kCopies;
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  auto has = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(
        words, [&](std::string_view word) { return lower.find(word) != std::string::npos; });
  };
  if (has({"nccl"})) return KernelClass::kCollectives;
  if (has({"fmha", "flash", "sdpa", "attention", "cudnn_generated"}))
    return KernelClass::kAttention;
  if (has({"gemm", "nvjet", "cutlass", "cublas", "xmma", "triton_mm"}))
    return KernelClass::kProducts;
  if (has({"adam", "multi_tensor"})) return KernelClass::kOptimizer;
  return KernelClass::kElements;
}

class TraceReader {
 public:
  TraceReader(const JsonDocument& document, std::optional<int64_t> steps)
      : document_(document), steps_(steps) {}

  Result<TracedStep> Read() {
    JsonValue root = document_.root();
    std::optional<JsonValue> events = root.is_array() ? root : root.Find("traceEvents");
    if (!events || !events->is_array()) return Wrong(root, "a trace needs a list `traceEvents`");
    if (std::optional<JsonValue> unit = root.Find("displayTimeUnit")) {
      bool known = unit->is_string() && (unit->string() == "ms" || unit->string() == "ns");
      if (!known) return Wrong(*unit, "`displayTimeUnit` is not `ms` or `ns`");
    }
    for (JsonValue event : events->items()) HEDDLE_RETURN_IF_ERROR(Add(event));
    if (out_.kernels == 0)
      return Wrong(*events, "the trace has no GPU kernels; record it with the activities of CUDA");
    out_.steps = marks_.empty() ? steps_.value_or(1) : static_cast<int64_t>(marks_.size());
    auto mean = [&](double sum) { return WholeNanos(sum / static_cast<double>(out_.steps)); };
    for (size_t i = 0; i < kKernelClassCount; ++i) out_.busy[i] = mean(busy_[i]);
    if (!marks_.empty()) out_.length = mean(marked_);
    out_.kernels /= out_.steps;
    return out_;
  }

 private:
  Failure Wrong(JsonValue at, std::string_view message) const {
    Failure failure = document_.Fail(at, "{}", message);
    failure.diagnostics[0].kind = Diag::kCostsFile;
    return failure;
  }

  static std::string_view TextIn(JsonValue event, std::string_view key) {
    std::optional<JsonValue> value = event.Find(key);
    return value && value->is_string() ? value->string() : std::string_view();
  }

  // Microseconds, as Chrome's format has them.
  Result<double> Length(JsonValue event) const {
    std::optional<JsonValue> length = event.Find("dur");
    if (!length || !length->is_number() || !(length->number() >= 0 && length->number() < 1e12))
      return Wrong(length.value_or(event), "an event has no `dur` in microseconds");
    return length->number() * kTraceMicro;
  }

  Status Add(JsonValue event) {
    if (!event.is_object()) return Wrong(event, "an event is not an object");
    if (TextIn(event, "ph") != "X") return Done{};
    std::string_view category = TextIn(event, "cat");
    std::string_view name = TextIn(event, "name");
    // The host marks each step; the device repeats the mark.
    if (category == "user_annotation" && name.starts_with("ProfilerStep#")) {
      HEDDLE_TRY(double length, Length(event));
      if (marks_.insert(name).second) marked_ += length;
      return Done{};
    }
    if (category != "kernel" && category != "gpu_memcpy" && category != "gpu_memset") return Done{};
    HEDDLE_TRY(double length, Length(event));
    busy_[static_cast<size_t>(ClassOf(category, name))] += length;
    if (category == "kernel") ++out_.kernels;
    return Done{};
  }

  const JsonDocument& document_;
  std::optional<int64_t> steps_;
  TracedStep out_;
  std::array<double, kKernelClassCount> busy_{};
  std::set<std::string_view> marks_;
  double marked_ = 0;
};

}  // namespace

std::string_view Name(KernelClass kernels) { return kNames[static_cast<size_t>(kernels)]; }

Result<TracedStep> ReadTrace(std::string text, const std::string& file,
                             std::optional<int64_t> steps) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::move(text), file, Diag::kJson));
  return TraceReader(document, steps).Read();
}

}  // namespace heddle::price
