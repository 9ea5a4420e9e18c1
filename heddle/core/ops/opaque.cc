// The op that represents every ATen op outside the table. A node's attributes have the op's name.
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

Result<Types> NoShape(const OpArgs&) {
  return Error(Diag::kUnknownOp, "an op that is not in the table has no shape rule");
}

}  // namespace

HEDDLE_DEFINE_OP(opaque){
    .schema = "heddle::opaque() -> ()",
    .shape = NoShape,
    .factors = {.compute = WholeFactors},
    .effect = Effect::kOpaque,
    .example = "()",
};

}  // namespace heddle
