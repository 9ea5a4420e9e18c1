// Quantities with typed units. Headers use them for all sizes, times and amounts of work.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle {

// Arithmetic saturates at the limits of 64 bits, because a hostile graph may state any size.
template <typename Tag>
struct Quantity {
  int64_t value = 0;

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) { return *this = *this + other; }
  constexpr Quantity& operator-=(Quantity other) { return *this = *this - other; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    int64_t sum = 0;
    if (__builtin_add_overflow(a.value, b.value, &sum))
      return {b.value > 0 ? INT64_MAX : INT64_MIN};
    return {sum};
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    int64_t difference = 0;
    if (__builtin_sub_overflow(a.value, b.value, &difference))
      return {b.value < 0 ? INT64_MAX : INT64_MIN};
    return {difference};
  }
  friend constexpr Quantity operator*(Quantity a, int64_t n) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a.value, n, &product))
      return {(a.value < 0) == (n < 0) ? INT64_MAX : INT64_MIN};
    return {product};
  }
};

using Bytes = Quantity<struct BytesTag>;
using Nanos = Quantity<struct NanosTag>;
using Flops = Quantity<struct FlopsTag>;

inline constexpr double kNanosPerMilli = 1e6;

constexpr Bytes KiB(int64_t n) { return {n << 10}; }
constexpr Bytes MiB(int64_t n) { return {n << 20}; }
constexpr Bytes GiB(int64_t n) { return {n << 30}; }

// `1.50 GiB`, `17 B`; `12.3 ms`; `4.5 TFLOP`.
std::string Format(Bytes bytes);
std::string Format(Nanos nanos);
std::string Format(Flops flops);

// `64MiB`, `1.5 GiB`, `4096` (bytes), `10GB` (powers of ten).
Result<Bytes> ParseBytes(std::string_view text);
// `10s`, `250ms`, `2min`.
Result<Nanos> ParseDuration(std::string_view text);

}  // namespace heddle
