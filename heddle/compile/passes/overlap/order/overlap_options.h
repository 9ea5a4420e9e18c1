// Options of the overlap pass: what a schedule may change, and how to search for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::compile {

enum class Effort : uint8_t { kFast, kNormal, kBest };
Result<Effort> ParseEffort(std::string_view name);

// A memory limit as text: empty for the peak of the given order, `5GiB`, or `+1GiB` above that
// peak.
struct PeakLimit {
  std::optional<Bytes> bytes;
  bool above_peak = false;

  Bytes Of(Bytes peak) const {
    if (!bytes) return peak;
    return above_peak ? peak + *bytes : *bytes;
  }
};
Result<PeakLimit> ParsePeakLimit(std::string_view text);

// Which collectives to merge.
struct BucketRule {
  enum class Kind : uint8_t {
    // None.
    kNone,
    // Whatever gives the shortest step.
    kAuto,
    // Up to a size.
    kSize,
  };
  Kind kind = Kind::kAuto;
  Bytes size;
};
// Parses `auto`, `none`, `25MiB`.
Result<BucketRule> ParseBucketRule(std::string_view text);

// The compute that may move.
enum class Freedom : uint8_t {
  kNone,
  // All except matrix products and attention, which keep their order.
  kLight,
  // All; compute of a single gradient may also run later.
  kAll,
};

struct OverlapOptions {
  PeakLimit memory;
  BucketRule buckets;
  Effort effort = Effort::kNormal;
  // Also reorders matrix products and attention.
  bool reorder_compute = false;
  // Keeps the order of collectives and compute, and merges nothing.
  bool strict = false;

  Freedom freedom() const {
    if (strict) return Freedom::kNone;
    return reorder_compute ? Freedom::kAll : Freedom::kLight;
  }
};

}  // namespace heddle::compile
