#include "heddle/run/verify/compare.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "heddle/core/base/text.h"
#include "heddle/run/runtime/fault.h"
#include "heddle/run/runtime/shards.h"

namespace heddle::run {
namespace {

std::string ValueText(const at::Tensor& flat, int64_t element) {
  auto value = flat[element].item<double>();
  std::string text;
  AppendFloat(text, value);
  return fmt::format("{} ({})", text, HexFloat(value));
}

int64_t DifferingBits(const char* a, const char* b, size_t bytes) {
  int64_t bits = 0;
  for (size_t i = 0; i < bytes; ++i)
    bits += std::popcount(static_cast<uint8_t>(a[i]) ^
                          static_cast<unsigned>(static_cast<uint8_t>(b[i])));
  return bits;
}

// Describes the first difference of two tensors that differ, and counts the others.
void DescribeDifference(const at::Tensor& a, const at::Tensor& b, Comparison& comparison,
                        Difference& difference) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    difference.differing_elements = -1;
    difference.first = TensorText(a);
    difference.second = TensorText(b);
    comparison.differing_bits += static_cast<int64_t>(std::max(a.nbytes(), b.nbytes())) * 8;
    return;
  }
  at::Tensor x = a.cpu().contiguous().view({-1});
  at::Tensor y = b.cpu().contiguous().view({-1});
  auto size = static_cast<size_t>(x.element_size());
  const auto* first = static_cast<const char*>(x.data_ptr());
  const auto* second = static_cast<const char*>(y.data_ptr());
  comparison.differing_bits += DifferingBits(first, second, x.nbytes());
  difference.elements = x.numel();
  for (int64_t i = 0; i < x.numel(); ++i) {
    auto offset = static_cast<size_t>(i) * size;
    if (std::memcmp(first + offset, second + offset, size) == 0) continue;
    if (difference.differing_elements++ > 0) continue;
    difference.element = i;
    difference.first = ValueText(x, i);
    difference.second = ValueText(y, i);
  }
}

void CompareTensors(const at::Tensor& a, const at::Tensor& b, Difference where,
                    Comparison& comparison) {
  if (!a.defined() && !b.defined()) return;
  ++comparison.tensors;
  if (!a.defined() || !b.defined()) {
    where.differing_elements = -1;
    where.first = TensorText(a);
    where.second = TensorText(b);
    comparison.differing_bits += 1;
  } else {
    comparison.elements += a.numel();
    if (SameBits(a, b)) return;
    DescribeDifference(a, b, comparison, where);
  }
  if (!comparison.first) comparison.first = std::move(where);
}

}  // namespace

std::string HexFloat(double value) {
  if (std::isnan(value)) return "nan";
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

Comparison Compare(const TrainingRun& a, const TrainingRun& b, size_t params) {
  Comparison comparison;
  for (size_t at = 0; at < a.ranks().size(); ++at) {
    Difference where;
    where.rank = a.ranks()[at];
    std::optional<size_t> there = b.Find(where.rank);
    HEDDLE_CHECK(there.has_value(), "the runs have different ranks");
    CompareTensors(a.loss(at), b.loss(*there), where, comparison);
    for (StateKind kind : kStateKinds) {
      for (size_t param = 0; param < params; ++param) {
        where.kind = kind;
        where.param = param;
        CompareTensors(a.state(kind, at, param), b.state(kind, *there, param), where, comparison);
      }
    }
  }
  return comparison;
}

}  // namespace heddle::run
