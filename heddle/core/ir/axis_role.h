// The roles of mesh axes in parallel training.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

// kReplicate and kShard split the batch; kShard also splits parameters. Over kExpert, parameters
// are split like over kShard, and experts are shared. Over kContext, sequences are split by
// position. kHeadTail is the same with positions in head-tail order (positions.h).
enum class AxisRole : uint8_t {
  kNone,
  kReplicate,
  kShard,
  kTensor,
  kExpert,
  kContext,
  kPipeline,
  kHeadTail
};
// `tensor`
std::string_view Name(AxisRole role);
std::optional<AxisRole> ParseAxisRole(std::string_view name);

// The name of an axis with this role unless the user chooses another; empty if the role has none.
constexpr std::string_view UsualName(AxisRole role) {
  switch (role) {
    case AxisRole::kReplicate: return "dp_replicate";
    case AxisRole::kShard: return "dp";
    case AxisRole::kContext: return "cp";
    case AxisRole::kTensor: return "tp";
    default: return "";
  }
}

// Suffixes of the two axes that expert parallelism makes of the axis of kShard: the outer one keeps
// that role, the inner one has kExpert.
inline constexpr std::string_view kOuterExpertSuffix = "_mod_ep";
inline constexpr std::string_view kInnerExpertSuffix = "_in_ep";

// The role of an axis that is created by name alone. Only axes that are created use this; all other
// code reads `MeshAxis::role`.
AxisRole UsualRole(std::string_view name);

// Whether ranks along an axis of this role have different parts of the batch.
bool SplitsBatch(AxisRole role);
// Whether ranks along an axis of this role have different positions of the same sequences.
constexpr bool SplitsPositions(AxisRole role) {
  return role == AxisRole::kContext || role == AxisRole::kHeadTail;
}

}  // namespace heddle
