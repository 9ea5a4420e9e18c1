#include "heddle/core/ir/type.h"

#include <algorithm>

#include "heddle/core/base/check.h"
#include "heddle/core/base/division.h"
#include "heddle/core/base/pool.h"

namespace heddle {
namespace {

// Named symbols are identified by name, because a name has one bound per graph.
uint64_t KeyHash(const Symbol& symbol) {
  if (!symbol.is_chunk()) return Hash64(symbol.name);
  return MixHash(static_cast<uint64_t>(symbol.whole), symbol.axes.bits());
}

}  // namespace

int64_t ChunkSize(int64_t whole, std::span<const int64_t> axis_sizes,
                  std::span<const int64_t> coordinates) {
  int64_t size = whole;
  for (size_t i = 0; i < axis_sizes.size(); ++i) {
    int64_t chunk = CeilDiv(size, axis_sizes[i]);
    size = std::clamp<int64_t>(size - coordinates[i] * chunk, 0, chunk);
  }
  return size;
}

int64_t ChunkBegin(int64_t whole, std::span<const int64_t> axis_sizes,
                   std::span<const int64_t> coordinates) {
  int64_t begin = 0;
  int64_t size = whole;
  for (size_t i = 0; i < axis_sizes.size(); ++i) {
    int64_t chunk = CeilDiv(size, axis_sizes[i]);
    int64_t offset = std::min(size, coordinates[i] * chunk);
    begin += offset;
    size = std::min(chunk, size - offset);
  }
  return begin;
}

Part PartAt(int64_t whole, const Axes& axes, const Mesh& mesh, int64_t rank) {
  std::array<int64_t, Axes::kMax> sizes;
  std::array<int64_t, Axes::kMax> coordinates;
  for (size_t i = 0; i < axes.size(); ++i) {
    sizes[i] = mesh[axes[i]].size;
    coordinates[i] = mesh.Coordinate(rank, axes[i]);
  }
  std::span<const int64_t> s(sizes.data(), axes.size());
  std::span<const int64_t> c(coordinates.data(), axes.size());
  return {ChunkBegin(whole, s, c), ChunkSize(whole, s, c)};
}

Dim SymbolTable::FindOrAdd(const Symbol& symbol) {
  uint64_t hash = KeyHash(symbol);
  uint32_t found = index_.Find(hash, [&](uint32_t n) {
    const Symbol& known = symbols_[n];
    return known.name == symbol.name && (!known.is_chunk() || known == symbol);
  });
  if (found != HashIndex::kNone) return kFirstSymbol + static_cast<Dim>(found);
  index_.Insert(hash, static_cast<uint32_t>(symbols_.size()));
  symbols_.push_back(symbol);
  return kFirstSymbol + static_cast<Dim>(symbols_.size() - 1);
}

Dim SymbolTable::Named(std::string_view name, int64_t bound) {
  return FindOrAdd({.name = std::string(name), .bound = bound, .whole = 0, .axes = {}});
}

Dim SymbolTable::Chunk(int64_t whole, const Axes& all_axes, const Mesh& mesh) {
  if (whole % mesh.Size(all_axes) == 0) return whole / mesh.Size(all_axes);
  // Outer axes that divide the size reduce it: `16{dp,tp}` is `8{tp}` if dp=2 and tp=3.
  Axes axes;
  for (AxisId axis : all_axes) {
    if (axes.empty() && whole % mesh[axis].size == 0) {
      whole /= mesh[axis].size;
    } else {
      axes.Add(axis);
    }
  }
  int64_t bound = whole;
  for (AxisId axis : axes) bound = CeilDiv(bound, mesh[axis].size);
  return FindOrAdd({.name = {}, .bound = bound, .whole = whole, .axes = axes});
}

const Symbol* SymbolTable::Find(std::string_view name) const {
  uint32_t found = index_.Find(Hash64(name), [&](uint32_t n) { return symbols_[n].name == name; });
  return found == HashIndex::kNone ? nullptr : &symbols_[found];
}

uint64_t SymbolTable::ContentHash(Dim dim) const {
  if (!IsSymbol(dim)) return static_cast<uint64_t>(dim);
  const Symbol& symbol = (*this)[dim];
  uint64_t hash = MixHash(Hash64(symbol.name), static_cast<uint64_t>(symbol.bound));
  return MixHash(MixHash(hash, static_cast<uint64_t>(symbol.whole)), symbol.axes.bits());
}

Dim SymbolTable::Import(Dim dim, const SymbolTable& from) {
  if (!IsSymbol(dim)) return dim;
  return FindOrAdd(from[dim]);
}

std::optional<int64_t> CheckedBytes(const SymbolTable& symbols, std::span<const Dim> dims,
                                    DType dtype) {
  int64_t bytes = ItemSize(dtype);
  bool empty = false;
  for (Dim dim : dims) {
    int64_t bound = symbols.Bound(dim);
    empty |= bound == 0;
    // A zero elsewhere does not excuse sizes whose product overflows.
    if (bound != 0 && __builtin_mul_overflow(bytes, bound, &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

TypeTable::TypeTable() {
  Entry none;
  none.content_hash = MixHash(0, 0);
  Add(none, none.content_hash);
}

TypeId TypeTable::Add(Entry entry, uint64_t hash) {
  TypeId id = entries_.Add(entry);
  index_.Insert(hash, id.index());
  return id;
}

TypeId TypeTable::Tensor(DType dtype, std::span<const Dim> dims, Space space) {
  if (dtype == DType::kNone) return kNoneType;
  uint64_t key =
      MixHash(Hash64(dims), static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(space));
  uint32_t found = index_.Find(key, [&](uint32_t n) {
    const Entry& e = entries_[TypeId(n)];
    return !e.async && e.dtype == dtype && e.space == space &&
           std::ranges::equal(this->dims(TypeId(n)), dims);
  });
  if (found != HashIndex::kNone) return TypeId(found);

  std::optional<int64_t> bytes = CheckedBytes(symbols_, dims, dtype);
  HEDDLE_CHECK(bytes.has_value(), "the bytes of a type exceed 2^63 - 1");
  Entry entry;
  entry.dtype = dtype;
  entry.space = space;
  entry.begin = static_cast<uint32_t>(dims_.size());
  entry.count = static_cast<uint32_t>(dims.size());
  entry.bytes = {*bytes};
  entry.numel = *bytes / ItemSize(dtype);
  entry.content_hash = MixHash(static_cast<uint64_t>(dtype) + 1, static_cast<uint64_t>(space));
  for (Dim dim : dims) entry.content_hash = MixHash(entry.content_hash, symbols_.ContentHash(dim));
  AppendToPool(dims_, dims);
  return Add(entry, key);
}

TypeId TypeTable::Async(std::span<const TypeId> elements) {
  uint64_t key = 1;
  for (TypeId element : elements) key = MixHash(key, element.index());
  uint32_t found = index_.Find(key, [&](uint32_t n) {
    return entries_[TypeId(n)].async && std::ranges::equal(this->elements(TypeId(n)), elements);
  });
  if (found != HashIndex::kNone) return TypeId(found);

  Entry entry;
  entry.async = true;
  entry.begin = static_cast<uint32_t>(elements_.size());
  entry.count = static_cast<uint32_t>(elements.size());
  entry.content_hash = MixHash(1, elements.size());
  for (TypeId element : elements) {
    entry.bytes += bytes(element);
    if (__builtin_add_overflow(entry.numel, elements_bound(element), &entry.numel))
      entry.numel = INT64_MAX;
    entry.content_hash = MixHash(entry.content_hash, content_hash(element));
  }
  AppendToPool(elements_, elements);
  return Add(entry, key);
}

TypeId TypeTable::Intern(const Type& type) {
  if (!type.async) return Tensor(type.dtype, type.dims, type.space);
  std::vector<TypeId> elements;
  for (const Type& element : type.elements) elements.push_back(Intern(element));
  return Async(elements);
}

Type TypeTable::operator[](TypeId id) const {
  const Entry& entry = entries_[id];
  Type type;
  type.dtype = entry.dtype;
  type.space = entry.space;
  type.async = entry.async;
  if (entry.async) {
    for (TypeId element : elements(id)) type.elements.push_back((*this)[element]);
  } else {
    auto d = dims(id);
    type.dims.assign(d.begin(), d.end());
  }
  return type;
}

bool SameType(const TypeTable& a, TypeId x, const TypeTable& b, TypeId y) {
  auto same_dim = [&](Dim p, Dim q) {
    return IsSymbol(p) && IsSymbol(q) ? a.symbols()[p] == b.symbols()[q] : p == q;
  };
  auto same_element = [&](TypeId p, TypeId q) { return SameType(a, p, b, q); };
  return a.is_async(x) == b.is_async(y) && a.dtype(x) == b.dtype(y) && a.space(x) == b.space(y) &&
         std::ranges::equal(a.dims(x), b.dims(y), same_dim) &&
         std::ranges::equal(a.elements(x), b.elements(y), same_element);
}

std::span<const Dim> TypeTable::dims(TypeId id) const {
  const Entry& entry = entries_[id];
  if (entry.async) return {};
  return {dims_.data() + entry.begin, entry.count};
}

std::span<const TypeId> TypeTable::elements(TypeId id) const {
  const Entry& entry = entries_[id];
  if (!entry.async) return {};
  return {elements_.data() + entry.begin, entry.count};
}

}  // namespace heddle
