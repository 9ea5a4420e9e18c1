// Attributes of graphs as arguments of ATen, and back.
#pragma once

#include <functional>
#include <optional>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/attrs.h"
#include "heddle/core/ir/schema.h"

namespace heddle::run {

// The number that a symbol stands for, or nothing where it is not known.
using SizeResolver = std::function<std::optional<int64_t>(const Symbol&)>;
// Chunks as `rank` has them. `mesh` outlives the resolver.
SizeResolver SizesAt(const Mesh& mesh, int64_t rank);
// Whether an attribute is, or lists, a size that is not a number.
bool HasSymbols(const Attrs& attrs);

// The argument that ATen takes for `value`. `size_of` gives symbols their numbers; without it there may be none.
Result<c10::IValue> ToIValue(const AttrValue& value, const Mesh& mesh, const SymbolTable& symbols,
                             const SizeResolver& size_of = {});
// The attribute of kind `kind` that an ATen argument is.
Result<AttrValue> FromIValue(const c10::IValue& value, ArgKind kind);
// The kind of an argument of an ATen schema; kAmbient for what graphs leave out.
ArgKind KindOf(const c10::Argument& arg);

}  // namespace heddle::run
