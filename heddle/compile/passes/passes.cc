#include "heddle/compile/passes/passes.h"

namespace heddle::compile {

#define HEDDLE_PASS(ident) extern const PassDef kPassDef_##ident;
#include "heddle/compile/passes/pass_list.def"
#undef HEDDLE_PASS

const PassTable& Passes() {
  static constexpr const PassDef* kPasses[] = {
#define HEDDLE_PASS(ident) &kPassDef_##ident,
#include "heddle/compile/passes/pass_list.def"
#undef HEDDLE_PASS
  };
  static constexpr PassTable::Named kPipelines[] = {
#include "heddle/compile/passes/pipelines.inc"
  };
  static constexpr PassTable kTable{kPasses, kPipelines};
  return kTable;
}

}  // namespace heddle::compile
