// Overlap: an order of starts, waits and compute, and buckets, that make a step short under a hard cap on memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/pass/pass.h"
#include "heddle/sim/simulate.h"
#include "heddle/sim/timeline/replay.h"

namespace heddle {

enum class Effort : uint8_t { kFast, kNormal, kBest };
Result<Effort> ParseEffort(std::string_view name);

// What may be alive, as text: nothing for the peak of the given order, `5GiB`, or `+1GiB` above that peak.
struct MemoryLimit {
  std::optional<Bytes> bytes;
  bool above_peak = false;

  Bytes Of(Bytes peak) const {
    if (!bytes) return peak;
    return above_peak ? peak + *bytes : *bytes;
  }
};
Result<MemoryLimit> ParseMemoryLimit(std::string_view text);

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
  MemoryLimit memory;
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

// A run of equal layers of a graph, and which of them have one schedule (share_layers.h).
struct EqualLayers {
  // The first matrix product or attention of the first, or what else comes first.
  std::string first;
  uint32_t count = 0;
  // Of a layer.
  uint32_t nodes = 0;
  // Layers from one to another, that included: what is scheduled between a layer and the next is the same for all, or for every second.
  struct Stretch {
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t period = 1;
  };
  std::vector<Stretch> shared;
};
// `31 equal layers of 106 nodes: layers 0 to 29 have one schedule`
std::string Format(const EqualLayers& layers);

struct OverlapResult {
  Bytes cap;
  Outcome before;
  Outcome after;
  // Light compute that runs between other matrix products and attentions than it stood.
  int64_t moved = 0;
  std::vector<EqualLayers> layers;
  Changed changed = Changed::kNo;
};

// Schedules `graph` of `module`. Diag::kInfeasible, with the smallest peak found, where no order keeps the cap.
Result<OverlapResult> Overlap(const Module& module, Graph& graph, const CostModel& model,
                              const SimulateOptions& sim, const OverlapOptions& options,
                              PassContext& context);

}  // namespace heddle
