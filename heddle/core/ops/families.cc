#include "heddle/core/ops/families.h"

#include <algorithm>
#include <array>

namespace heddle {
namespace {

constexpr std::string_view kFamilyNames[] = {
#define HEDDLE_FAMILY(name) #name,
    HEDDLE_FAMILIES(HEDDLE_FAMILY)
#undef HEDDLE_FAMILY
};

// Checks that the enum has every family of the op table.
#define HEDDLE_OP(ident, family) static_assert(OpFamily::family != OpFamily::other);
#include "heddle/core/ops/op_list.def"
#undef HEDDLE_OP

}  // namespace

OpFamily FamilyOf(const Op& op) {
  auto at = std::ranges::find(kFamilyNames, op.family);
  return at == std::end(kFamilyNames) ? OpFamily::other
                                      : static_cast<OpFamily>(at - std::begin(kFamilyNames));
}

}  // namespace heddle
