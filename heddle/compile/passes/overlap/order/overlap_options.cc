#include "heddle/compile/passes/overlap/order/overlap_options.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

constexpr std::array<std::string_view, 3> kEfforts = {"fast", "normal", "best"};

}  // namespace

Result<Effort> ParseEffort(std::string_view name) {
  auto at = std::ranges::find(kEfforts, name);
  if (at != kEfforts.end()) return static_cast<Effort>(at - kEfforts.begin());
  return Error(Diag::kPassOption, "`{}` is not an effort{}; choose one of {}", name,
               NearestHint(name, kEfforts), fmt::join(kEfforts, ", "));
}

Result<PeakLimit> ParsePeakLimit(std::string_view text) {
  PeakLimit limit;
  if (text.empty()) return limit;
  limit.above_peak = text.starts_with('+');
  HEDDLE_TRY(limit.bytes, ParseBytes(limit.above_peak ? text.substr(1) : text));
  return limit;
}

Result<BucketRule> ParseBucketRule(std::string_view text) {
  if (text == "auto") return BucketRule{};
  if (text == "none") return BucketRule{BucketRule::Kind::kNone, {}};
  HEDDLE_TRY(Bytes size, ParseBytes(text));
  if (size.value <= 0)
    return Error(Diag::kPassOption, "a bucket of {} bytes is too small; expected a size above 0",
                 size.value);
  return BucketRule{BucketRule::Kind::kSize, size};
}

}  // namespace heddle::compile
