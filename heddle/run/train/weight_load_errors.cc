#include "heddle/run/train/weight_load_errors.h"

#include "heddle/run/checkpoint/safetensors_header.h"

namespace heddle::run {
namespace {

// Whether type `to` represents every number of type `from` exactly.
bool HoldsExactly(DType to, DType from) {
  if (from == to || from == DType::kBF16 || from == DType::kF16) return true;
  return from == DType::kF32 && to == DType::kF64;
}

}  // namespace

void WeightLoadErrors::Add(std::string_view what) {
  constexpr size_t kMost = 20;
  if (++count_ <= kMost) {
    problems_.push_back(MakeDiagnostic(Diag::kFileRead, "{}", what));
    problems_.back().file = path_;
  }
  if (count_ == kMost + 1) problems_.push_back(MakeDiagnostic(Diag::kManyMistakes, "and more"));
}

void WeightLoadErrors::Check(const std::string& name, const SafetensorsFile::Entry* entry,
                             std::span<const int64_t> shape, DType master) {
  if (entry == nullptr) {
    Add(fmt::format("has no tensor `{}`, which the model needs", name));
  } else if (!std::ranges::equal(entry->shape, shape)) {
    Add(fmt::format("`{}` is {}, but the model expects {}", name, FormatSizes(entry->shape),
                    FormatSizes(shape)));
  } else if (!HoldsExactly(master, entry->dtype)) {
    Add(fmt::format("`{}` is {}, which master weights in {} cannot represent exactly", name,
                    *SafetensorsTypeName(entry->dtype), *SafetensorsTypeName(master)));
  }
}

}  // namespace heddle::run
