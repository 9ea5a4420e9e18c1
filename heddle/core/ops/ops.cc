#include "heddle/core/ops/ops.h"

namespace heddle {

#define HEDDLE_OP(ident, family) extern const OpDef kOpDef_##ident;
#include "heddle/core/ops/op_list.def"
#undef HEDDLE_OP

const OpTable& Ops() {
  static constexpr OpTable::Entry kEntries[] = {
#define HEDDLE_OP(ident, family) {&kOpDef_##ident, #family},
#include "heddle/core/ops/op_list.def"
#undef HEDDLE_OP
  };
  static const OpTable table(kEntries);
  return table;
}

}  // namespace heddle
