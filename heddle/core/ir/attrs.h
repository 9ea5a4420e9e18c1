// Attributes: everything about a call that is not a tensor.
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

// Why a collective is there. Written by the code that inserts it; no pass guesses it from the shape of a chain.
enum class Why : uint8_t { kUnshard, kGrad, kTensor, kExpert, kLoss, kNorm };
enum class MemoryFormat : uint8_t { kContiguous, kPreserve, kChannelsLast };

std::string_view Name(Why why);
std::string_view Name(MemoryFormat format);

// Ints may be dimensions, symbols included. Strings are names, not data.
using AttrValue = std::variant<std::monostate, bool, int64_t, double, std::complex<double>, DType,
                               MemoryFormat, Why, ReduceOp, Axes, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;

// Equality by bits: a NaN equals itself, 0.0 and -0.0 differ.
bool SameValue(const AttrValue& a, const AttrValue& b);

// Item `i` of an attribute that is one integer, or one string, for all operands or a list with one for each.
int64_t EachInt(const AttrValue& value, size_t i);
const std::string& EachString(const AttrValue& value, size_t i);

// An enumerator or element type by its name in the text, as a value: `bf16`, `sum`, `unshard`, `contiguous`.
AttrValue ParseEnumerator(std::string_view name);

// Words that stand for a value or begin a type, and so cannot name an axis or a symbol.
bool IsReservedWord(std::string_view word);

struct Attr {
  std::string name;
  AttrValue value;
  bool operator==(const Attr& other) const {
    return name == other.name && SameValue(value, other.value);
  }
};

// One argument of an opaque call that takes tensors: positional if it has no name; a list if `is_list`.
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
  // An opaque op only: its name, and how its operands are passed.
  std::string opaque_op;
  std::vector<OpaqueSlot> opaque_slots;

  bool operator==(const Attrs&) const = default;
  const AttrValue* Find(std::string_view name) const;
  // Replaces or appends. Where several are set, CanonicalAttrs (ir/edit/call_builder.h) puts them in the order of the schema.
  void Set(std::string_view name, AttrValue value);
};

using AttrsId = Id<struct AttrsTag>;

// The distinct attribute lists of one graph.
class AttrsTable {
 public:
  static constexpr AttrsId kEmpty{0};

  AttrsTable();

  AttrsId Intern(const Attrs& attrs, const SymbolTable& symbols);
  const Attrs& operator[](AttrsId id) const { return attrs_[id]; }
  uint64_t content_hash(AttrsId id) const { return hashes_[id]; }
  size_t size() const { return attrs_.size(); }

 private:
  Table<AttrsId, Attrs> attrs_;
  Table<AttrsId, uint64_t> hashes_;
  HashIndex index_;
};

// A value as it stands in the text: `true`, `3`, `0.5`, `bf16`, `"x"`, `[1,2]`, `["x","y"]`, `[dp,tp]`, `none`.
void AppendAttrValue(std::string& out, const AttrValue& value, const Mesh& mesh,
                     const SymbolTable& symbols);
// A dimension as it stands in the text: `4096`, `t0`, `5{dp}`.
void AppendDim(std::string& out, Dim dim, const Mesh& mesh, const SymbolTable& symbols);

}  // namespace heddle
