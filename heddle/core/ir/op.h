// OpDef: the facts of an op, stated once. OpTable: the ops that a graph may contain.
//
// Parsing, printing, checking, sharding, cost and execution read these facts and have no case per
// op.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/id.h"
#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"
#include "heddle/core/ir/attrs.h"
#include "heddle/core/ir/factors.h"
#include "heddle/core/ir/schema.h"
#include "heddle/core/ir/type.h"

namespace heddle {

using OpId = Id<struct OpTag>;
// An ATen op that is not in the table. Its attributes contain its name and signature.
inline constexpr OpId kOpaqueOp{0};

// The effect of an op besides its results; passes move and remove nodes by it.
enum class Effect : uint8_t {
  // Results depend on operands and attributes only.
  kPure,
  // Pure, and every result shares the storage of operand 0.
  kView,
  // Pure, and result i takes over the storage of operand i (core/ir/storage.h).
  kUpdate,
  // Pure over all ranks together: moves data between ranks or memories.
  kComm,
  // Draws random numbers: never merged or removed.
  kRandom,
  // Unknown: never merged or removed.
  kOpaque,
};
std::string_view Name(Effect effect);

// The amounts of work of an op. `price/cost` converts them to time.
struct Work {
  Flops flops;
  Bytes read;
  Bytes written;
};

struct Op;

// One call for a shape rule: operand types in the flat order of the schema (none for an absent
// optional one) and attributes with their defaults.
class OpArgs {
 public:
  OpArgs(const Op& op, const Attrs& attrs, const Mesh& mesh, SymbolTable& symbols,
         std::vector<Type> operands)
      : op_(op), attrs_(attrs), mesh_(mesh), symbols_(symbols), operands_(std::move(operands)) {}

  const Op& op() const { return op_; }
  const Mesh& mesh() const { return mesh_; }
  SymbolTable& symbols() const { return symbols_; }
  const Attrs& attrs() const { return attrs_; }

  size_t size() const { return operands_.size(); }
  const std::vector<Type>& operands() const { return operands_; }
  const Type& operator[](size_t i) const { return operands_[i]; }
  const Dims& dims(size_t i) const { return operands_[i].dims; }
  DType dtype(size_t i) const { return operands_[i].dtype; }
  bool has(size_t i) const { return i < operands_.size() && !operands_[i].is_none(); }
  // The tensors of the n-th list argument.
  std::span<const Type> list(size_t n) const;

  // The attribute, or its default.
  const AttrValue& attr(std::string_view name) const;
  bool IsNone(std::string_view name) const {
    return std::holds_alternative<std::monostate>(attr(name));
  }
  int64_t Int(std::string_view name) const { return std::get<int64_t>(attr(name)); }
  // The value for tensor `i` of an attribute with one value per tensor of `Tensor...`.
  int64_t EachInt(std::string_view name, size_t i) const { return heddle::EachInt(attr(name), i); }
  const std::string& EachString(std::string_view name, size_t i) const {
    return heddle::EachString(attr(name), i);
  }
  int64_t IntOr(std::string_view name, int64_t otherwise) const {
    return IsNone(name) ? otherwise : Int(name);
  }
  bool Bool(std::string_view name) const { return std::get<bool>(attr(name)); }
  // Empty if the attribute is none.
  const std::vector<int64_t>& Ints(std::string_view name) const;
  DType DTypeOr(std::string_view name, DType otherwise) const {
    return IsNone(name) ? otherwise : std::get<DType>(attr(name));
  }
  Axes AxesOf(std::string_view name) const { return std::get<Axes>(attr(name)); }

 private:
  const Op& op_;
  const Attrs& attrs_;
  const Mesh& mesh_;
  SymbolTable& symbols_;
  std::vector<Type> operands_;
};

using Types = std::vector<Type>;
using ShapeFn = Result<Types> (*)(const OpArgs&);
using FactorsFn = Result<Factors> (*)(const OpArgs&, const Types& results);
using WorkFn = Work (*)(const OpArgs&, const Types& results);

// A rule in text, or a function if dimensions depend on attributes. `linear` is for a function.
struct FactorRule {
  std::string_view text = {};
  FactorsFn compute = nullptr;
  std::string_view linear = {};
};

// A rank with some rows of a table (Factor::masked) shifts the numbers that are looked up. This is
// the treatment of numbers that belong to other ranks:
enum class OutOfShardRows : uint8_t {
  kZeroInResult,   // result 0 is zero there
  kZeroInOperand,  // operand 0 is set to zero there
  kIgnored,        // they are replaced by the value of the attribute `ignore_index`
};
// How an op looks up rows of a table by number.
struct RowLookup {
  static constexpr uint8_t kResult = UINT8_MAX;
  // Operand indices; the table may be result 0.
  uint8_t table = 0;
  uint8_t index = 1;
  // The dimension of the table that is numbered, and the attribute that repeats its size.
  uint8_t dim = 0;
  OutOfShardRows out_of_shard = OutOfShardRows::kZeroInResult;
  std::string_view size_attr = {};
};

// A list of tensors that an update returns unwritten, unless an optional tensor is given.
struct SparedList {
  std::string_view list;
  std::string_view unless;
};

// The facts of one op.
struct OpDef {
  std::string_view schema;
  ShapeFn shape = nullptr;
  FactorRule factors = {};
  // Null: reads operands, writes results, and does one operation per element of result 0.
  WorkFn work = nullptr;
  Effect effect = Effect::kPure;
  std::optional<SparedList> spared = {};
  // The view of the modules that may contain it; none for any.
  std::optional<View> view = {};
  // The attribute that repeats the shape of result 0 and must match it: `size`, `input_sizes`.
  std::string_view shape_attr = {};
  // Every element of the result has the same value, given by attributes, and `shape_attr` gives its
  // shape. A rank can compute any part of it directly.
  bool constant = false;
  std::optional<RowLookup> lookup = {};
  // An example call, operands as types: `(bf16[8,16], bf16[16,4])`. Conformance tests run it.
  std::string_view example = {};
};

// An op of the table: its facts, its family and its parsed schema.
struct Op {
  const OpDef* def;
  std::string_view family;
  Schema schema;

  std::string_view name() const { return schema.name; }
  Effect effect() const { return def->effect; }
};

class OpTable {
 public:
  struct Entry {
    const OpDef* def;
    std::string_view family;
  };
  // Entry 0 is the opaque op. Aborts if a schema does not parse.
  explicit OpTable(std::span<const Entry> entries);

  const Op& operator[](OpId id) const { return ops_[id]; }
  // The op with this name, or none.
  OpId Find(std::string_view name) const;
  // The most similar name, as a hint for messages.
  std::string Hint(std::string_view name) const;
  IdRange<OpId> ids() const { return ops_.ids(); }
  size_t size() const { return ops_.size(); }

 private:
  Table<OpId, Op> ops_;
  HashIndex index_;
};

// Derived from the facts of an op:
Result<Types> InferTypes(const OpArgs& args);
Result<Factors> InferFactors(const OpArgs& args, const Types& results);
Work InferWork(const OpArgs& args, const Types& results);

}  // namespace heddle
