#include "heddle/import/read/torch_types.h"

#include <charconv>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

struct TorchDType {
  std::string_view word;
  std::string_view abbreviation;
  DType dtype;
};
constexpr TorchDType kTorchDTypes[] = {
    {"bfloat16", "bf16", DType::kBF16},
    {"float32", "f32", DType::kF32},
    {"int64", "i64", DType::kI64},
    {"int32", "i32", DType::kI32},
    {"bool", "b8", DType::kBool},
    {"float16", "f16", DType::kF16},
    {"float64", "f64", DType::kF64},
    {"complex64", "c64", DType::kC64},
    {"complex128", "c128", DType::kC128},
    {"int16", "i16", DType::kI16},
    {"int8", "i8", DType::kI8},
    {"uint8", "u8", DType::kU8},
    {"uint64", "u64", DType::kU64},
    {"float8_e4m3fn", "f8e4m3fn", DType::kF8E4M3},
    {"float8_e5m2", "f8e5m2", DType::kF8E5M2},
    // Synonyms.
    {"float", "f32", DType::kF32},
    {"double", "f64", DType::kF64},
    {"half", "f16", DType::kF16},
    {"long", "i64", DType::kI64},
    {"int", "i32", DType::kI32},
};

}  // namespace

std::optional<DType> ParseTorchDType(std::string_view word) {
  if (!word.starts_with("torch.")) return std::nullopt;
  word.remove_prefix(6);
  for (const TorchDType& one : kTorchDTypes) {
    if (one.word == word) return one.dtype;
  }
  return std::nullopt;
}

std::optional<Type> ParseFxType(std::string_view text) {
  text = Trim(text);
  size_t open = text.find('[');
  size_t close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  const TorchDType* dtype = nullptr;
  for (const TorchDType& one : kTorchDTypes) {
    if (one.abbreviation == text.substr(0, open) && dtype == nullptr) dtype = &one;
  }
  if (dtype == nullptr) return std::nullopt;
  Dims dims;
  std::string_view sizes = Trim(text.substr(open + 1, close - open - 1));
  if (!sizes.empty()) {
    for (std::string_view word : Split(sizes, ',')) {
      word = Trim(word);
      int64_t size = 0;
      auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
      if (error != std::errc() || end != word.data() + word.size() || size < 0) return std::nullopt;
      dims.push_back(size);
    }
  }
  if (!CheckedBytes(SymbolTable(), dims, dtype->dtype)) return std::nullopt;
  return Type::Tensor(dtype->dtype, std::move(dims));
}

}  // namespace heddle
