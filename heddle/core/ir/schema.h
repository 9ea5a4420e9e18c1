// Schemas: an op's signature, read from ATen's own notation.
//
// Heddle's ops use the same notation with a few more types: `Tensor... x` (any number of tensors, printed without
// brackets), `int... x` and `str... x` (one for all of these tensors, or a list with one for each), `Async x`, `Axes`,
// `Why`, `ReduceOp`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/attrs.h"

namespace heddle {

enum class ArgKind : uint8_t {
  // Operands.
  kTensor,
  kOptionalTensor,
  kTensorList,
  kOptionalTensorList,
  kTensors,
  kAsync,
  // Attributes.
  kBool,
  kInt,
  kFloat,
  kScalar,
  kString,
  kDType,
  kMemoryFormat,
  kAxes,
  kWhy,
  kReduceOp,
  kIntList,
  kFloatList,
  kBoolList,
  // One for all tensors of the call's `Tensor...`, or a list with one for each. Where all are equal, it is the one.
  kEachInt,
  kEachString,
  // Left to the runtime: device, layout, pinned memory, generator. Not part of a graph.
  kAmbient,
};

constexpr bool IsOperand(ArgKind kind) { return kind <= ArgKind::kAsync; }
constexpr bool IsListOperand(ArgKind kind) {
  return kind == ArgKind::kTensorList || kind == ArgKind::kOptionalTensorList ||
         kind == ArgKind::kTensors;
}
constexpr bool IsAttribute(ArgKind kind) {
  return kind > ArgKind::kAsync && kind != ArgKind::kAmbient;
}
// What a value of this kind looks like, for messages: `a list of integers`.
std::string_view Describe(ArgKind kind);

struct Arg {
  std::string name;
  ArgKind kind;
  // An attribute that may be `none`.
  bool optional = false;
  bool has_default = false;
  AttrValue default_value;
};

enum class ReturnKind : uint8_t { kTensor, kTensors, kAsync, kOther };

struct Schema {
  // As in the text: `aten.add.Tensor`.
  std::string name;
  std::vector<Arg> args;
  std::vector<ReturnKind> returns;

  const Arg* Find(std::string_view arg_name) const;
  // The number of results, or -1 where the call decides.
  int FixedResults() const;
};

Result<Schema> ParseSchema(std::string_view text);

// `value` as an attribute of `arg`, or nothing if it is of another kind. An int for a float becomes a float; one int for
// a list of ints, a list; a list of equal items with one for each tensor, that item.
std::optional<AttrValue> ConvertAttr(const Arg& arg, AttrValue value);

}  // namespace heddle
