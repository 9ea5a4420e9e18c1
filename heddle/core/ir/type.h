// Types of values: a tensor type, or the result of a collective before its wait.
//
// A dimension is an int64: a size, or the code of a symbol. A *named* symbol is a size known only
// at run time, with an upper bound: `t0<=4096`. A *chunk* is this rank's part of a size that its
// mesh axes do not divide: `5{dp}` in a local graph is 2, 2, 1 and 0 on four ranks. If they divide
// it, the size is a number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/id.h"
#include "heddle/core/base/units.h"
#include "heddle/core/ir/dtype.h"
#include "heddle/core/ir/mesh.h"

namespace heddle {

using Dim = int64_t;
using Dims = std::vector<Dim>;
using TypeId = Id<struct TypeTag>;

inline constexpr Dim kFirstSymbol = INT64_MIN;
inline constexpr Dim kLastSymbol = INT64_MIN + (int64_t{1} << 32);
constexpr bool IsSymbol(Dim dim) { return dim < kLastSymbol; }

// A size that is not a number: a named symbol or a chunk.
struct Symbol {
  // Empty for a chunk.
  std::string name;
  // The upper bound; for a chunk, the first rank's part.
  int64_t bound = 0;
  // For a chunk: the size that is split, and the axes.
  int64_t whole = 0;
  Axes axes;

  bool is_chunk() const { return name.empty(); }
  bool operator==(const Symbol&) const = default;
};

// This rank's part of `whole` after splitting it over axes of these sizes, the outermost first, in
// chunks of ceil(size / ranks). The last ranks' parts are shorter or empty. `coordinates` are the
// rank's coordinates along the same axes.
int64_t ChunkSize(int64_t whole, std::span<const int64_t> axis_sizes,
                  std::span<const int64_t> coordinates);
// The beginning of that part.
int64_t ChunkBegin(int64_t whole, std::span<const int64_t> axis_sizes,
                   std::span<const int64_t> coordinates);

// Size and beginning, for a rank of a mesh.
struct Part {
  int64_t begin;
  int64_t size;
  bool operator==(const Part&) const = default;
};
Part PartAt(int64_t whole, const Axes& axes, const Mesh& mesh, int64_t rank);

// The memory that contains a tensor.
enum class Space : uint8_t { kDevice, kHost };

// A type by value, for shape rules. Graphs store TypeIds.
struct Type {
  DType dtype = DType::kNone;
  Space space = Space::kDevice;
  bool async = false;
  Dims dims;
  // For an async type: the results of its wait.
  std::vector<Type> elements;

  bool is_none() const { return dtype == DType::kNone && !async; }
  size_t rank() const { return dims.size(); }
  bool operator==(const Type&) const = default;

  static Type Tensor(DType dtype, Dims dims, Space space = Space::kDevice) {
    return {
        .dtype = dtype, .space = space, .async = false, .dims = std::move(dims), .elements = {}};
  }
  static Type Async(std::vector<Type> elements) {
    Type type;
    type.async = true;
    type.elements = std::move(elements);
    return type;
  }
};

// The symbols of one graph.
class SymbolTable {
 public:
  // The dimension of a named symbol. An existing symbol keeps its bound; the caller compares if
  // necessary.
  Dim Named(std::string_view name, int64_t bound);
  // This rank's part of `whole`: a number if the axes divide it, otherwise a chunk.
  Dim Chunk(int64_t whole, const Axes& axes, const Mesh& mesh);
  // The symbol with this name, or null.
  const Symbol* Find(std::string_view name) const;
  const Symbol& operator[](Dim dim) const {
    return symbols_[static_cast<size_t>(dim - kFirstSymbol)];
  }
  Dim DimOf(const Symbol& symbol) const { return kFirstSymbol + (&symbol - symbols_.data()); }
  bool Has(Dim dim) const { return static_cast<size_t>(dim - kFirstSymbol) < symbols_.size(); }
  size_t size() const { return symbols_.size(); }

  // The size, or a symbol's upper bound.
  int64_t Bound(Dim dim) const { return IsSymbol(dim) ? (*this)[dim].bound : dim; }
  // A hash of the dimension's meaning, independent of insertion order.
  uint64_t ContentHash(Dim dim) const;
  // The dimension with the same meaning in this table.
  Dim Import(Dim dim, const SymbolTable& from);

 private:
  Dim FindOrAdd(const Symbol& symbol);
  std::vector<Symbol> symbols_;
  HashIndex index_;
};

// The distinct types of one graph.
class TypeTable {
 public:
  // The type of an undefined tensor.
  static constexpr TypeId kNoneType{0};

  TypeTable();

  // The id of an equal type, which is added if it is new.
  TypeId Tensor(DType dtype, std::span<const Dim> dims, Space space = Space::kDevice);
  TypeId Async(std::span<const TypeId> elements);
  TypeId Intern(const Type& type);
  Type operator[](TypeId id) const;

  bool is_async(TypeId id) const { return entries_[id].async; }
  DType dtype(TypeId id) const { return entries_[id].dtype; }
  Space space(TypeId id) const { return entries_[id].space; }
  size_t rank(TypeId id) const { return entries_[id].count; }
  std::span<const Dim> dims(TypeId id) const;
  std::span<const TypeId> elements(TypeId id) const;
  // The maximum size of a tensor, or of the elements of an async type, in bytes.
  Bytes bytes(TypeId id) const { return entries_[id].bytes; }
  int64_t elements_bound(TypeId id) const { return entries_[id].numel; }
  uint64_t content_hash(TypeId id) const { return entries_[id].content_hash; }
  size_t size() const { return entries_.size(); }

  SymbolTable& symbols() { return symbols_; }
  const SymbolTable& symbols() const { return symbols_; }

 private:
  struct Entry {
    DType dtype = DType::kNone;
    Space space = Space::kDevice;
    bool async = false;
    uint32_t begin = 0;
    uint32_t count = 0;
    int64_t numel = 0;
    Bytes bytes;
    uint64_t content_hash = 0;
  };
  TypeId Add(Entry entry, uint64_t hash);

  Table<TypeId, Entry> entries_;
  std::vector<Dim> dims_;
  std::vector<TypeId> elements_;
  HashIndex index_;
  SymbolTable symbols_;
};

// Whether types of two tables, of two graphs of one module, are equal. Symbols are equal by name
// and bound, or by the size and axes that they are a part of.
bool SameType(const TypeTable& a, TypeId x, const TypeTable& b, TypeId y);

// The product of sizes and an item size, or nullopt if it exceeds 2^63 - 1.
std::optional<int64_t> CheckedBytes(const SymbolTable& symbols, std::span<const Dim> dims,
                                    DType dtype);

}  // namespace heddle
