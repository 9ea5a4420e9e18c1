#include "heddle/train/misfits.h"

#include "heddle/train/safetensors_header.h"

namespace heddle {
namespace {

// Whether every number of type `from` is one of type `to`.
bool HoldsExactly(at::ScalarType to, at::ScalarType from) {
  if (from == to || from == at::kBFloat16 || from == at::kHalf) return true;
  return from == at::kFloat && to == at::kDouble;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

void Misfits::Add(std::string_view what) {
  constexpr size_t kMost = 20;
  if (++count_ <= kMost) {
    problems_.push_back(MakeDiagnostic(Diag::kFileRead, "{}", what));
    problems_.back().file = path_;
  }
  if (count_ == kMost + 1) problems_.push_back(MakeDiagnostic(Diag::kManyMistakes, "and more"));
}

void Misfits::Check(const std::string& name, const SafetensorsFile::Entry* entry,
                    std::span<const int64_t> shape, at::ScalarType master) {
  if (entry == nullptr) {
    Add(fmt::format("has no `{}`, which the model has", name));
  } else if (!std::ranges::equal(entry->shape, shape)) {
    Add(fmt::format("`{}` is {}, the model has {}", name, ShapeText(entry->shape),
                    ShapeText(shape)));
  } else if (!HoldsExactly(master, entry->type)) {
    Add(fmt::format("`{}` is {}, which master weights in {} cannot hold exactly", name,
                    *SafetensorsTypeName(entry->type), *SafetensorsTypeName(master)));
  }
}

}  // namespace heddle
