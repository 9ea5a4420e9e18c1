// The ops of Heddle: their ids, and the table of their facts.
//
// Ids are constants, so passes can compare `node.op == op::mm`. `op_list.def` lists every op once,
// and a family file defines it. An op that is listed but not defined is a link error.
#pragma once

#include "heddle/core/ir/op.h"

namespace heddle {

namespace op {
enum class Number : uint32_t {
#define HEDDLE_OP(ident, family) ident,
#include "heddle/core/ops/op_list.def"
#undef HEDDLE_OP
};
#define HEDDLE_OP(ident, family) inline constexpr OpId ident{static_cast<uint32_t>(Number::ident)};
#include "heddle/core/ops/op_list.def"
#undef HEDDLE_OP
}  // namespace op

const OpTable& Ops();

}  // namespace heddle
