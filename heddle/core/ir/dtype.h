// Element types of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

// kNone is the type of an undefined tensor.
enum class DType : uint8_t {
  kNone,
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kC64,
  kC128,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU8,
  kBool
};
inline constexpr int kDTypeCount = 16;

// In rising order: an op on two categories gives the higher one.
enum class DTypeCategory : uint8_t { kBool, kInt, kFloat, kComplex };

// The name in the text: `bf16`.
std::string_view Name(DType dtype);
std::optional<DType> ParseDType(std::string_view name);
int64_t ItemSize(DType dtype);
DTypeCategory Category(DType dtype);
inline bool IsFloat(DType d) { return Category(d) == DTypeCategory::kFloat; }
inline bool IsComplex(DType d) { return Category(d) == DTypeCategory::kComplex; }
inline bool IsInteger(DType d) { return Category(d) <= DTypeCategory::kInt; }

// The smallest type that holds both, by ATen's rules.
DType Promote(DType a, DType b);
// c64 for f32 and smaller floats, c128 for f64; and back.
DType ToComplex(DType real);
DType ToReal(DType complex);

}  // namespace heddle
