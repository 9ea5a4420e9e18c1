// The roles of mesh axes in parallel training.
#pragma once

#include <cstdint>
#include <string_view>

#include "heddle/core/ir/mesh.h"

namespace heddle {

// kReplicate and kShard split the batch; kShard also splits parameters. Over kExpert, parameters
// are split like over kShard, and experts are shared.
enum class AxisRole : uint8_t { kNone, kReplicate, kShard, kTensor, kExpert, kContext, kPipeline };

// The name of an axis with this role unless the user chooses another; empty if the role has none.
constexpr std::string_view UsualName(AxisRole role) {
  switch (role) {
    case AxisRole::kReplicate: return "dp_replicate";
    case AxisRole::kShard: return "dp";
    case AxisRole::kTensor: return "tp";
    default: return "";
  }
}

// Suffixes of the two axes that expert parallelism makes of the axis of kShard: the outer one keeps
// that role, the inner one has kExpert.
inline constexpr std::string_view kOuterExpertSuffix = "_mod_ep";
inline constexpr std::string_view kInnerExpertSuffix = "_in_ep";

// The role that the name of an axis implies. Nothing else may draw conclusions from names.
AxisRole RoleOf(const MeshAxis& axis);
bool SplitsBatch(AxisRole role);

}  // namespace heddle
