#include "heddle/run/aten/dtype.h"

namespace heddle::run {
namespace {

struct Pair {
  DType dtype;
  c10::ScalarType scalar;
};
constexpr Pair kPairs[] = {
    {DType::kF64, c10::ScalarType::Double},
    {DType::kF32, c10::ScalarType::Float},
    {DType::kF16, c10::ScalarType::Half},
    {DType::kBF16, c10::ScalarType::BFloat16},
    {DType::kF8E4M3, c10::ScalarType::Float8_e4m3fn},
    {DType::kF8E5M2, c10::ScalarType::Float8_e5m2},
    {DType::kC64, c10::ScalarType::ComplexFloat},
    {DType::kC128, c10::ScalarType::ComplexDouble},
    {DType::kI64, c10::ScalarType::Long},
    {DType::kI32, c10::ScalarType::Int},
    {DType::kI16, c10::ScalarType::Short},
    {DType::kI8, c10::ScalarType::Char},
    {DType::kU64, c10::ScalarType::UInt64},
    {DType::kU8, c10::ScalarType::Byte},
    {DType::kBool, c10::ScalarType::Bool},
};

}  // namespace

c10::ScalarType ToScalarType(DType dtype) {
  for (const Pair& pair : kPairs) {
    if (pair.dtype == dtype) return pair.scalar;
  }
  return c10::ScalarType::Undefined;
}

Result<DType> FromScalarType(c10::ScalarType type) {
  for (const Pair& pair : kPairs) {
    if (pair.scalar == type) return pair.dtype;
  }
  return Error(Diag::kBadType, "graphs do not support the element type {}", c10::toString(type));
}

}  // namespace heddle::run
