#include "heddle/core/ir/axis_role.h"

namespace heddle {

AxisRole RoleOf(const MeshAxis& axis) {
  for (AxisRole role : {AxisRole::kReplicate, AxisRole::kShard, AxisRole::kTensor}) {
    if (axis.name == UsualName(role)) return role;
  }
  std::string_view name = axis.name;
  if (!name.starts_with(UsualName(AxisRole::kShard))) return AxisRole::kNone;
  name.remove_prefix(UsualName(AxisRole::kShard).size());
  if (name == kOuterExpertSuffix) return AxisRole::kShard;
  return name == kInnerExpertSuffix ? AxisRole::kExpert : AxisRole::kNone;
}

bool SplitsBatch(AxisRole role) {
  return role == AxisRole::kReplicate || role == AxisRole::kShard || role == AxisRole::kExpert;
}

}  // namespace heddle
