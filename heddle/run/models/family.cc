#include "heddle/run/models/family.h"

namespace heddle::run {

#define HEDDLE_FAMILY(ident) extern const Family kFamily_##ident;
#include "heddle/run/models/family_list.def"
#undef HEDDLE_FAMILY

std::span<const Family* const> Families() {
  static constexpr const Family* kFamilies[] = {
#define HEDDLE_FAMILY(ident) &kFamily_##ident,
#include "heddle/run/models/family_list.def"
#undef HEDDLE_FAMILY
  };
  return kFamilies;
}

}  // namespace heddle::run
