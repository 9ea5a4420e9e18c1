#include "heddle/core/ir/dtype.h"

namespace heddle {
namespace {

struct Info {
  std::string_view name;
  int64_t size;
  DTypeCategory category;
};

constexpr Info kInfo[kDTypeCount] = {
    {"none", 0, DTypeCategory::kBool},     {"f64", 8, DTypeCategory::kFloat},
    {"f32", 4, DTypeCategory::kFloat},     {"f16", 2, DTypeCategory::kFloat},
    {"bf16", 2, DTypeCategory::kFloat},    {"f8e4m3", 1, DTypeCategory::kFloat},
    {"f8e5m2", 1, DTypeCategory::kFloat},  {"c64", 8, DTypeCategory::kComplex},
    {"c128", 16, DTypeCategory::kComplex}, {"i64", 8, DTypeCategory::kInt},
    {"i32", 4, DTypeCategory::kInt},       {"i16", 2, DTypeCategory::kInt},
    {"i8", 1, DTypeCategory::kInt},        {"u64", 8, DTypeCategory::kInt},
    {"u8", 1, DTypeCategory::kInt},        {"bool", 1, DTypeCategory::kBool},
};

const Info& Of(DType d) { return kInfo[static_cast<size_t>(d)]; }

}  // namespace

std::string_view Name(DType dtype) { return Of(dtype).name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 1; i < kDTypeCount; ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t ItemSize(DType dtype) { return Of(dtype).size; }
DTypeCategory Category(DType dtype) { return Of(dtype).category; }

DType Promote(DType a, DType b) {
  if (a == b || b == DType::kNone) return a;
  if (a == DType::kNone) return b;
  if (Category(a) < Category(b)) return Promote(b, a);
  // `a` has the higher category from here on.
  if (Category(a) == DTypeCategory::kComplex) {
    bool wide = a == DType::kC128 || b == DType::kC128 || b == DType::kF64;
    return wide ? DType::kC128 : DType::kC64;
  }
  if (Category(a) != Category(b)) return a;
  if (Category(a) == DTypeCategory::kFloat) {
    // Two different floats of at most two bytes promote to f32.
    if (a == DType::kF64 || b == DType::kF64) return DType::kF64;
    return DType::kF32;
  }
  if (a == DType::kU8 || b == DType::kU8) {
    DType other = a == DType::kU8 ? b : a;
    return other == DType::kI8 ? DType::kI16 : other;
  }
  return ItemSize(a) >= ItemSize(b) ? a : b;
}

DType ToComplex(DType real) {
  if (IsComplex(real)) return real;
  return real == DType::kF64 ? DType::kC128 : DType::kC64;
}

DType ToReal(DType complex) {
  if (complex == DType::kC64) return DType::kF32;
  return complex == DType::kC128 ? DType::kF64 : complex;
}

}  // namespace heddle
