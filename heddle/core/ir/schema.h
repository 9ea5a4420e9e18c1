// Schemas: an op's signature in ATen's notation.
//
// Heddle's ops use the same notation with a few more types: `Tensor... x` (any number of tensors,
// printed without brackets), `int... x` and `str... x` (one for all of these tensors, or a list
// with one for each), `Async x`, `Axes`, `Why`, `ReduceOp`.
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
  // One value for all tensors of the call's `Tensor...`, or a list with one for each. Stored as one
  // value if all are equal.
  kEachInt,
  kEachString,
  // Determined by the runtime and not part of a graph: device, layout, pinned memory, generator.
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
// A description of values of this kind, for messages: `a list of integers`.
std::string_view Describe(ArgKind kind);

// One argument of a schema.
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
  // The number of results, or -1 if it depends on the call.
  int FixedResults() const;
};

// Parses a signature such as `aten::add.Tensor(Tensor self, Tensor other) -> Tensor`.
Result<Schema> ParseSchema(std::string_view text);

// `value` converted to the kind of `arg`, or nullopt if it does not convert. An int converts to a
// float, one int to a list of ints, and a list of equal items per tensor to one item.
std::optional<AttrValue> ConvertAttr(const Arg& arg, AttrValue value);

}  // namespace heddle
