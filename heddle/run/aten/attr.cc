#include "heddle/run/aten/attr.h"

#include <algorithm>

#include <c10/core/MemoryFormat.h>

#include "heddle/run/aten/dtype.h"

namespace heddle::run {
namespace {

c10::MemoryFormat ToMemoryFormat(MemoryFormat format) {
  switch (format) {
    case MemoryFormat::kContiguous: return c10::MemoryFormat::Contiguous;
    case MemoryFormat::kPreserve: return c10::MemoryFormat::Preserve;
    case MemoryFormat::kChannelsLast: return c10::MemoryFormat::ChannelsLast;
  }
  return c10::MemoryFormat::Contiguous;
}

Result<AttrValue> FromMemoryFormat(c10::MemoryFormat format) {
  switch (format) {
    case c10::MemoryFormat::Contiguous: return AttrValue(MemoryFormat::kContiguous);
    case c10::MemoryFormat::Preserve: return AttrValue(MemoryFormat::kPreserve);
    case c10::MemoryFormat::ChannelsLast: return AttrValue(MemoryFormat::kChannelsLast);
    default: return Error(Diag::kAttrKind, "a memory format that graphs do not support");
  }
}

AttrValue FromScalar(const c10::Scalar& scalar) {
  if (scalar.isBoolean()) return scalar.toBool();
  if (scalar.isIntegral(false)) return scalar.toLong();
  if (scalar.isComplex()) return std::complex<double>(scalar.toComplexDouble());
  return scalar.toDouble();
}

bool HasSymbol(const AttrValue& value) {
  if (const auto* one = std::get_if<int64_t>(&value)) return IsSymbol(*one);
  const auto* list = std::get_if<std::vector<int64_t>>(&value);
  return list != nullptr && std::ranges::any_of(*list, IsSymbol);
}

// Replaces a symbol by its number. Returns false if the number is unknown.
bool Resolve(int64_t& size, const SymbolTable& symbols, const SizeResolver& size_of) {
  if (!IsSymbol(size)) return true;
  std::optional<int64_t> number = size_of ? size_of(symbols[size]) : std::nullopt;
  if (number) size = *number;
  return number.has_value();
}

Result<AttrValue> WithNumbers(const AttrValue& value, const Mesh& mesh, const SymbolTable& symbols,
                              const SizeResolver& size_of) {
  AttrValue resolved = value;
  bool known = true;
  if (auto* one = std::get_if<int64_t>(&resolved)) {
    known = Resolve(*one, symbols, size_of);
  } else {
    for (int64_t& size : std::get<std::vector<int64_t>>(resolved))
      known &= Resolve(size, symbols, size_of);
  }
  if (known) return resolved;
  std::string text;
  AppendAttrValue(text, value, mesh, symbols);
  return Error(Diag::kSymbolicSize, "attribute {} has a symbolic size without a value", text);
}

}  // namespace

SizeResolver SizesAt(const Mesh& mesh, int64_t rank) {
  return [&mesh, rank](const Symbol& symbol) -> std::optional<int64_t> {
    if (!symbol.is_chunk()) return std::nullopt;
    return PartAt(symbol.whole, symbol.axes, mesh, rank).size;
  };
}

bool HasSymbols(const Attrs& attrs) {
  return std::ranges::any_of(attrs.list, [](const Attr& attr) { return HasSymbol(attr.value); });
}

Result<c10::IValue> ToIValue(const AttrValue& value, const Mesh& mesh, const SymbolTable& symbols,
                             const SizeResolver& size_of) {
  if (HasSymbol(value)) {
    HEDDLE_TRY(AttrValue resolved, WithNumbers(value, mesh, symbols, size_of));
    return ToIValue(resolved, mesh, symbols);
  }
  return std::visit(
      [](const auto& v) -> Result<c10::IValue> {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return c10::IValue();
        } else if constexpr (std::is_same_v<T, DType>) {
          return c10::IValue(ToScalarType(v));
        } else if constexpr (std::is_same_v<T, MemoryFormat>) {
          return c10::IValue(ToMemoryFormat(v));
        } else if constexpr (std::is_same_v<T, std::complex<double>>) {
          return c10::IValue(c10::complex<double>(v));
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          c10::List<bool> bools;
          for (bool item : v) bools.push_back(item);
          return c10::IValue(bools);
        } else if constexpr (std::is_same_v<T, Why> || std::is_same_v<T, ReduceOp> ||
                             std::is_same_v<T, Axes>) {
          return Error(Diag::kAttrKind, "a collective's attribute cannot be passed to ATen");
        } else {
          return c10::IValue(v);
        }
      },
      value);
}

Result<AttrValue> FromIValue(const c10::IValue& value, ArgKind kind) {
  if (value.isNone()) return AttrValue();
  switch (kind) {
    case ArgKind::kBool: return AttrValue(value.toBool());
    case ArgKind::kInt: return AttrValue(value.toSymInt().expect_int());
    case ArgKind::kFloat: return AttrValue(value.toDouble());
    case ArgKind::kScalar: return FromScalar(value.toScalar());
    case ArgKind::kString: return AttrValue(value.toStringRef());
    case ArgKind::kDType: {
      HEDDLE_TRY(DType dtype, FromScalarType(value.toScalarType()));
      return AttrValue(dtype);
    }
    case ArgKind::kMemoryFormat: return FromMemoryFormat(value.toMemoryFormat());
    case ArgKind::kIntList: {
      std::vector<int64_t> list;
      if (value.isIntList()) return AttrValue(value.toIntVector());
      for (const c10::SymInt& item : value.toSymIntVector()) list.push_back(item.expect_int());
      return AttrValue(std::move(list));
    }
    case ArgKind::kFloatList: return AttrValue(value.toDoubleVector());
    case ArgKind::kBoolList: {
      std::vector<bool> list;
      for (bool item : value.toBoolList()) list.push_back(item);
      return AttrValue(std::move(list));
    }
    default:
      return Error(Diag::kAttrKind, "an argument of type {} cannot become an attribute",
                   value.tagKind());
  }
}

ArgKind KindOf(const c10::Argument& arg) {
  c10::TypePtr type = arg.real_type();
  bool optional = type->kind() == c10::TypeKind::OptionalType;
  if (optional) type = type->castRaw<c10::OptionalType>()->getElementType();
  if (arg.name() == "pin_memory") return ArgKind::kAmbient;
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return optional ? ArgKind::kOptionalTensor : ArgKind::kTensor;
    case c10::TypeKind::BoolType: return ArgKind::kBool;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return ArgKind::kInt;
    case c10::TypeKind::FloatType: return ArgKind::kFloat;
    case c10::TypeKind::NumberType: return ArgKind::kScalar;
    case c10::TypeKind::StringType: return ArgKind::kString;
    case c10::TypeKind::ScalarTypeType: return ArgKind::kDType;
    case c10::TypeKind::MemoryFormatType: return ArgKind::kMemoryFormat;
    case c10::TypeKind::ListType: {
      c10::TypePtr element = type->castRaw<c10::ListType>()->getElementType();
      switch (element->kind()) {
        case c10::TypeKind::TensorType: return ArgKind::kTensorList;
        case c10::TypeKind::OptionalType: return ArgKind::kOptionalTensorList;
        case c10::TypeKind::BoolType: return ArgKind::kBoolList;
        case c10::TypeKind::FloatType: return ArgKind::kFloatList;
        default: return ArgKind::kIntList;
      }
    }
    default: return ArgKind::kAmbient;
  }
}

}  // namespace heddle::run
