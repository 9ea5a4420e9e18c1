#include "heddle/run/runtime/device/same_numbers.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

namespace heddle::run {

at::Tensor ProofNumbers(int64_t count, DType dtype, int64_t seed, bool with_special,
                        c10::Device device) {
  // A prime, so that the pattern does not align with rows.
  constexpr int64_t kPeriod = 4194301;
  at::Tensor at = at::arange(std::min(count, kPeriod), at::TensorOptions(at::kLong).device(device));
  // Odd multipliers permute the numbers of 16 and of 64 bits.
  at::Tensor mixed = at.add(seed * 7919).mul(static_cast<int64_t>(0x9E3779B97F4A7C15u));
  at::Tensor fraction = mixed.bitwise_right_shift(40).bitwise_and(0xFFFFFF).to(at::kFloat);
  at::Tensor usual = fraction.mul(0x1p-21).sub(4);
  at::Tensor special =
      dtype == DType::kBF16
          ? at.mul(2 * seed + 1).add(seed).to(at::kShort).view(at::kBFloat16).to(at::kFloat)
          : mixed.bitwise_right_shift(20).to(at::kInt).view(at::kFloat);
  at::Tensor is_special = at.bitwise_right_shift(12).bitwise_and(7).eq(7);
  at::Tensor numbers = (with_special ? at::where(is_special, special, usual) : usual)
                           .to(dtype == DType::kBF16 ? at::kBFloat16 : at::kFloat);
  return numbers.repeat({(count + kPeriod - 1) / kPeriod}).slice(0, 0, count).contiguous();
}

bool SameNumbers(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_complex()) return SameNumbers(at::view_as_real(a), at::view_as_real(b));
  // Comparing a part at a time needs little memory.
  constexpr int64_t kPart = 1 << 26;
  at::ScalarType bits = a.element_size() == 2 ? at::kShort : at::kInt;
  at::Tensor left = a.contiguous().view({-1});
  at::Tensor right = b.contiguous().view({-1});
  for (int64_t first = 0; first < left.numel(); first += kPart) {
    at::Tensor one = left.slice(0, first, first + kPart);
    at::Tensor other = right.slice(0, first, first + kPart);
    at::Tensor same = one.view(bits).eq(other.view(bits));
    if (!same.logical_or(one.isnan().logical_and(other.isnan())).all().item<bool>()) return false;
  }
  return true;
}

}  // namespace heddle::run
