// Converts attributes of graphs to arguments of ATen, and back.
#pragma once

#include <functional>
#include <optional>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/attrs.h"
#include "heddle/core/ir/schema.h"

namespace heddle::run {

// Returns the number of a symbol, or nullopt if it is unknown.
using SizeResolver = std::function<std::optional<int64_t>(const Symbol&)>;
// Resolves symbols to the sizes of the shards of `rank`. `mesh` must outlive the resolver.
SizeResolver SizesAt(const Mesh& mesh, int64_t rank);
// Whether an attribute is a symbolic size, or a list that contains one.
bool HasSymbols(const Attrs& attrs);

// Returns the ATen argument for `value`. `size_of` resolves symbols; without it, `value` must not
// contain any.
Result<c10::IValue> ToIValue(const AttrValue& value, const Mesh& mesh, const SymbolTable& symbols,
                             const SizeResolver& size_of = {});
// Returns the attribute of kind `kind` for an ATen argument.
Result<AttrValue> FromIValue(const c10::IValue& value, ArgKind kind);
// Returns the kind of an argument of an ATen schema; kAmbient for arguments that graphs leave out.
ArgKind KindOf(const c10::Argument& arg);

}  // namespace heddle::run
