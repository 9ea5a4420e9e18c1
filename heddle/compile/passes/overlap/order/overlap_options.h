// What a schedule may do, and what it is looked for with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::compile {

enum class Effort : uint8_t { kFast, kNormal, kBest };
Result<Effort> ParseEffort(std::string_view name);

// What may be alive, as text: nothing for the peak of the given order, `5GiB`, or `+1GiB` above that peak.
struct PeakLimit {
  std::optional<Bytes> bytes;
  bool above_peak = false;

  Bytes Of(Bytes peak) const {
    if (!bytes) return peak;
    return above_peak ? peak + *bytes : *bytes;
  }
};
Result<PeakLimit> ParsePeakLimit(std::string_view text);

// Which collectives are launched together.
struct BucketRule {
  enum class Kind : uint8_t {
    // As they are.
    kNone,
    // Whatever makes the step shortest.
    kAuto,
    // Up to a size.
    kSize,
  };
  Kind kind = Kind::kAuto;
  Bytes size;
};
// `auto`, `none`, `25MiB`.
Result<BucketRule> ParseBucketRule(std::string_view text);

// What of compute may run elsewhere than it stands.
enum class Freedom : uint8_t {
  kNone,
  // All but matrix products and attention, which keep their order.
  kLight,
  // All; what makes one gradient may also run later.
  kAll,
};

struct OverlapOptions {
  PeakLimit memory;
  BucketRule buckets;
  Effort effort = Effort::kNormal;
  // Matrix products and attention may leave their order, too.
  bool reorder_compute = false;
  // No collective passes another, nothing is merged, and all compute keeps its order.
  bool strict = false;

  Freedom freedom() const {
    if (strict) return Freedom::kNone;
    return reorder_compute ? Freedom::kAll : Freedom::kLight;
  }
};

}  // namespace heddle::compile
