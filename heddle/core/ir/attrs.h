// Attributes: all arguments of a call that are not tensors.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/id.h"
#include "heddle/core/ir/dtype.h"
#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"
#include "heddle/core/ir/type.h"

namespace heddle {

// The purpose of a collective. The code that inserts the collective sets it; no pass infers it.
enum class Why : uint8_t { kUnshard, kGrad, kTensor, kExpert, kLoss, kNorm, kContext };
enum class MemoryFormat : uint8_t { kContiguous, kPreserve, kChannelsLast };

// The name in the text: `unshard`, `contiguous`.
std::string_view Name(Why why);
std::string_view Name(MemoryFormat format);

// Ints may be dimensions, symbols included. Strings are names, not data.
using AttrValue = std::variant<std::monostate, bool, int64_t, double, std::complex<double>, DType,
                               MemoryFormat, Why, ReduceOp, Axes, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;

// Equality by bits: a NaN equals itself, 0.0 and -0.0 differ.
bool SameValue(const AttrValue& a, const AttrValue& b);

// Item `i` of an attribute that has one integer, or one string, for all operands, or a list with
// one for each.
int64_t EachInt(const AttrValue& value, size_t i);
const std::string& EachString(const AttrValue& value, size_t i);

// The value of an enumerator or element type by its name in the text: `bf16`, `sum`, `unshard`,
// `contiguous`.
AttrValue ParseEnumerator(std::string_view name);

// Whether the text uses the word for a value or a type, so that it cannot name an axis or a symbol.
bool IsReservedWord(std::string_view word);

// A named attribute of a node.
struct Attr {
  std::string name;
  AttrValue value;
  bool operator==(const Attr& other) const {
    return name == other.name && SameValue(value, other.value);
  }
};

// One argument of an opaque call that takes tensors: positional if it has no name; a list if
// `is_list`.
struct OpaqueSlot {
  std::string name;
  bool is_list = false;
  uint32_t count = 1;
  bool operator==(const OpaqueSlot&) const = default;
};

// The attributes of one node, in the order of its op's schema, defaults left out.
struct Attrs {
  std::vector<Attr> list;
  // The lengths of the tensor lists among the operands, in order.
  std::vector<uint32_t> list_sizes;
  // Only for an opaque op: its name, and how its operands are passed.
  std::string opaque_op;
  std::vector<OpaqueSlot> opaque_slots;

  bool operator==(const Attrs&) const = default;
  const AttrValue* Find(std::string_view name) const;
  // Replaces or appends. After several calls, CanonicalAttrs (core/ir/edit/call_builder.h) restores
  // schema order.
  void Set(std::string_view name, AttrValue value);
};

using AttrsId = Id<struct AttrsTag>;

// The distinct attribute lists of one graph.
class AttrsTable {
 public:
  static constexpr AttrsId kEmpty{0};

  AttrsTable();

  // The id of an equal list, which is added if it is new.
  AttrsId Intern(const Attrs& attrs, const SymbolTable& symbols);
  const Attrs& operator[](AttrsId id) const { return attrs_[id]; }
  uint64_t content_hash(AttrsId id) const { return hashes_[id]; }
  size_t size() const { return attrs_.size(); }

 private:
  Table<AttrsId, Attrs> attrs_;
  Table<AttrsId, uint64_t> hashes_;
  HashIndex index_;
};

// A value in the syntax of the text: `true`, `3`, `0.5`, `bf16`, `"x"`, `[1,2]`, `["x","y"]`,
// `[dp,tp]`, `none`.
void AppendAttrValue(std::string& out, const AttrValue& value, const Mesh& mesh,
                     const SymbolTable& symbols);
// A dimension in the syntax of the text: `4096`, `t0`, `5{dp}`.
void AppendDim(std::string& out, Dim dim, const Mesh& mesh, const SymbolTable& symbols);

}  // namespace heddle
