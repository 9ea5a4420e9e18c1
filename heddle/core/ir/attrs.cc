#include "heddle/core/ir/attrs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "heddle/core/base/check.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

constexpr std::string_view kWhyNames[] = {"unshard", "grad", "tensor", "expert",
                                          "loss",    "norm", "context"};
constexpr std::string_view kMemoryFormatNames[] = {"contiguous", "preserve", "channels_last"};

// The first `count` enumerators, by their names.
template <typename Enum>
bool FindName(size_t count, std::string_view name, AttrValue& value) {
  for (size_t i = 0; i < count; ++i) {
    if (Name(static_cast<Enum>(i)) != name) continue;
    value = static_cast<Enum>(i);
    return true;
  }
  return false;
}

uint64_t Bits(double x) {
  return std::bit_cast<uint64_t>(std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x);
}

template <typename T>
uint64_t HashList(const std::vector<T>& list, auto&& bits) {
  uint64_t hash = list.size();
  for (const auto& item : list) hash = MixHash(hash, bits(item));
  return hash;
}

uint64_t HashValue(const AttrValue& value, const SymbolTable& symbols) {
  auto content = [&](const auto& v) -> uint64_t {
    using T = std::decay_t<decltype(v)>;
    if constexpr (std::is_same_v<T, std::monostate>)
      return 0;
    else if constexpr (std::is_same_v<T, int64_t>)
      return symbols.ContentHash(v);
    else if constexpr (std::is_same_v<T, double>)
      return Bits(v);
    else if constexpr (std::is_same_v<T, std::complex<double>>)
      return MixHash(Bits(v.real()), Bits(v.imag()));
    else if constexpr (std::is_same_v<T, Axes>)
      return v.bits();
    else if constexpr (std::is_same_v<T, std::string>)
      return Hash64(v);
    else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      return HashList(v, [&](int64_t x) { return symbols.ContentHash(x); });
    } else if constexpr (std::is_same_v<T, std::vector<double>>)
      return HashList(v, Bits);
    else if constexpr (std::is_same_v<T, std::vector<bool>>)
      return HashList(v, [](bool b) { return uint64_t{b}; });
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      return HashList(v, [](const std::string& s) { return Hash64(s); });
    else
      return static_cast<uint64_t>(v);
  };
  return MixHash(value.index(), std::visit(content, value));
}

uint64_t HashAttrs(const Attrs& attrs, const SymbolTable& symbols) {
  uint64_t hash = attrs.list.size();
  for (const Attr& attr : attrs.list) {
    hash = MixHash(MixHash(hash, Hash64(attr.name)), HashValue(attr.value, symbols));
  }
  for (uint32_t size : attrs.list_sizes) hash = MixHash(hash, size);
  if (attrs.opaque_op.empty()) return hash;
  hash = MixHash(hash, Hash64(attrs.opaque_op));
  for (const OpaqueSlot& slot : attrs.opaque_slots) {
    hash = MixHash(MixHash(hash, Hash64(slot.name)),
                   uint64_t{slot.count} << 1 | uint64_t{slot.is_list});
  }
  return hash;
}

}  // namespace

std::string_view Name(Why why) { return kWhyNames[static_cast<size_t>(why)]; }
std::string_view Name(MemoryFormat format) {
  return kMemoryFormatNames[static_cast<size_t>(format)];
}

bool SameValue(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return Bits(*x) == Bits(std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    return std::ranges::equal(*x, std::get<std::vector<double>>(b), {}, Bits, Bits);
  }
  if (const auto* x = std::get_if<std::complex<double>>(&a)) {
    const auto& y = std::get<std::complex<double>>(b);
    return Bits(x->real()) == Bits(y.real()) && Bits(x->imag()) == Bits(y.imag());
  }
  return a == b;
}

namespace {
template <typename T>
const T& Each(const AttrValue& value, size_t i) {
  if (const T* all = std::get_if<T>(&value)) return *all;
  const auto* list = std::get_if<std::vector<T>>(&value);
  HEDDLE_CHECK(list != nullptr && i < list->size(), "an attribute has no item for an operand");
  return (*list)[i];
}
}  // namespace

int64_t EachInt(const AttrValue& value, size_t i) { return Each<int64_t>(value, i); }
const std::string& EachString(const AttrValue& value, size_t i) {
  return Each<std::string>(value, i);
}

AttrValue ParseEnumerator(std::string_view name) {
  AttrValue value;
  if (std::optional<DType> dtype = ParseDType(name)) {
    value = *dtype;
  } else {
    // The names of all enumerations differ, so a value needs no schema to be read.
    FindName<Why>(std::size(kWhyNames), name, value) ||
        FindName<ReduceOp>(kReduceOpCount, name, value) ||
        FindName<MemoryFormat>(std::size(kMemoryFormatNames), name, value);
  }
  return value;
}

bool IsReservedWord(std::string_view word) {
  for (std::string_view reserved :
       {"none", "true", "false", "inf", "nan", "complex", "host", "async"}) {
    if (word == reserved) return true;
  }
  return !std::holds_alternative<std::monostate>(ParseEnumerator(word));
}

const AttrValue* Attrs::Find(std::string_view name) const {
  for (const Attr& attr : list) {
    if (attr.name == name) return &attr.value;
  }
  return nullptr;
}

void Attrs::Set(std::string_view name, AttrValue value) {
  for (Attr& attr : list) {
    if (attr.name == name) {
      attr.value = std::move(value);
      return;
    }
  }
  list.push_back({std::string(name), std::move(value)});
}

AttrsTable::AttrsTable() { Intern({}, {}); }

AttrsId AttrsTable::Intern(const Attrs& attrs, const SymbolTable& symbols) {
  uint64_t hash = HashAttrs(attrs, symbols);
  uint32_t found = index_.Find(hash, [&](uint32_t n) { return attrs_[AttrsId(n)] == attrs; });
  if (found != HashIndex::kNone) return AttrsId(found);
  AttrsId id = attrs_.Add(attrs);
  hashes_.Add(hash);
  index_.Insert(hash, id.index());
  return id;
}

void AppendDim(std::string& out, Dim dim, const Mesh& mesh, const SymbolTable& symbols) {
  if (!IsSymbol(dim)) {
    AppendInt(out, dim);
    return;
  }
  const Symbol& symbol = symbols[dim];
  if (!symbol.is_chunk()) {
    out += symbol.name;
    return;
  }
  AppendInt(out, symbol.whole);
  out += '{';
  AppendAxes(out, mesh, symbol.axes);
  out += '}';
}

void AppendAttrValue(std::string& out, const AttrValue& value, const Mesh& mesh,
                     const SymbolTable& symbols) {
  auto list = [&](const auto& items, auto&& append) {
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out += ',';
      append(items[i]);
    }
    out += ']';
  };
  auto boolean = [&](bool b) { out += b ? "true" : "false"; };
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>)
          out += "none";
        else if constexpr (std::is_same_v<T, bool>)
          boolean(v);
        else if constexpr (std::is_same_v<T, int64_t>)
          AppendDim(out, v, mesh, symbols);
        else if constexpr (std::is_same_v<T, double>)
          AppendFloat(out, v);
        else if constexpr (std::is_same_v<T, std::complex<double>>) {
          out += "complex(";
          AppendFloat(out, v.real());
          out += ',';
          AppendFloat(out, v.imag());
          out += ')';
        } else if constexpr (std::is_same_v<T, Axes>) {
          out += '[';
          AppendAxes(out, mesh, v);
          out += ']';
        } else if constexpr (std::is_same_v<T, std::string>)
          AppendQuoted(out, v);
        else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          list(v, [&](int64_t x) { AppendDim(out, x, mesh, symbols); });
        } else if constexpr (std::is_same_v<T, std::vector<double>>)
          list(v, [&](double x) { AppendFloat(out, x); });
        else if constexpr (std::is_same_v<T, std::vector<bool>>)
          list(v, boolean);
        else if constexpr (std::is_same_v<T, std::vector<std::string>>)
          list(v, [&](const std::string& x) { AppendQuoted(out, x); });
        else
          out += Name(v);
      },
      value);
}

}  // namespace heddle
