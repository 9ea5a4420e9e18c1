// Attributes of graphs as arguments of ATen, and back.
#pragma once

#include <ATen/core/ivalue.h>

#include "heddle/base/result.h"
#include "heddle/ir/attrs.h"
#include "heddle/ir/schema.h"

namespace heddle {

// The argument that ATen takes for `value`. Sizes must be plain numbers by now.
Result<c10::IValue> ToIValue(const AttrValue& value, const Mesh& mesh, const SymbolTable& symbols);
// The attribute of kind `kind` that an ATen argument is.
Result<AttrValue> FromIValue(const c10::IValue& value, ArgKind kind);
// The kind of an argument of an ATen schema; kAmbient for what graphs leave out.
ArgKind KindOf(const c10::Argument& arg);

}  // namespace heddle
