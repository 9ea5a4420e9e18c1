#include "heddle/core/ir/axis_role.h"

#include <array>

namespace heddle {
namespace {

// By role.
constexpr std::array<std::string_view, 8> kRoleNames = {
    "none", "replicate", "shard", "tensor", "expert", "context", "pipeline", "headtail"};

}  // namespace

std::string_view Name(AxisRole role) { return kRoleNames[static_cast<size_t>(role)]; }

std::optional<AxisRole> ParseAxisRole(std::string_view name) {
  for (size_t i = 0; i < kRoleNames.size(); ++i) {
    if (kRoleNames[i] == name) return static_cast<AxisRole>(i);
  }
  return std::nullopt;
}

AxisRole UsualRole(std::string_view name) {
  for (AxisRole role :
       {AxisRole::kReplicate, AxisRole::kShard, AxisRole::kContext, AxisRole::kTensor}) {
    if (name == UsualName(role)) return role;
  }
  if (!name.starts_with(UsualName(AxisRole::kShard))) return AxisRole::kNone;
  name.remove_prefix(UsualName(AxisRole::kShard).size());
  if (name == kOuterExpertSuffix) return AxisRole::kShard;
  return name == kInnerExpertSuffix ? AxisRole::kExpert : AxisRole::kNone;
}

bool SplitsBatch(AxisRole role) {
  return role == AxisRole::kReplicate || role == AxisRole::kShard || role == AxisRole::kExpert;
}

}  // namespace heddle
