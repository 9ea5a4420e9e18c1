#include "heddle/train/safetensors.h"

#include <unordered_set>

#include <ATen/ops/empty.h>

#include "heddle/aten/dtype.h"
#include "heddle/checkpoint/disk.h"
#include "heddle/checkpoint/safetensors_header.h"

namespace heddle {

Result<at::Tensor> ReadTensor(const SafetensorsFile& file, const SafetensorsFile::Entry& entry) {
  at::Tensor tensor = at::empty(entry.shape, ToScalarType(entry.dtype));
  HEDDLE_RETURN_IF_ERROR(file.ReadBytes(entry.begin, entry.end - entry.begin, tensor.data_ptr()));
  return tensor;
}

Result<std::string> FormatSafetensors(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<TensorInfo> infos;
  size_t size = 0;
  for (const auto& [name, tensor] : tensors) {
    HEDDLE_TRY(DType dtype, FromScalarType(tensor.scalar_type()));
    infos.push_back({name, dtype, tensor.sizes().vec()});
    size += tensor.nbytes();
  }
  HEDDLE_TRY(std::string content, FormatSafetensorsHeader(infos));
  content.reserve(content.size() + size);
  for (const auto& [name, tensor] : tensors) {
    at::Tensor plain = tensor.cpu().contiguous();
    content.append(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  }
  return content;
}

namespace {

// Whether every number of type `from` is one of type `to`.
bool HoldsExactly(DType to, DType from) {
  if (from == to || from == DType::kBF16 || from == DType::kF16) return true;
  return from == DType::kF32 && to == DType::kF64;
}

// What is wrong with a file for a model, most of it.
class Misfits {
 public:
  explicit Misfits(const std::string& path) : path_(path) {}

  void Add(std::string_view what) {
    constexpr size_t kMost = 20;
    if (++count_ <= kMost)
      problems_.push_back(FileError(Diag::kFileRead, path_, what).diagnostics[0]);
    if (count_ == kMost + 1) problems_.push_back(MakeDiagnostic(Diag::kManyMistakes, "and more"));
  }
  bool empty() const { return problems_.empty(); }
  Failure Take() { return {std::move(problems_)}; }

 private:
  const std::string& path_;
  size_t count_ = 0;
  Diagnostics problems_;
};

void CheckEntry(const SafetensorsFile& file, const ParamSpec& param, DType master,
                Misfits& misfits) {
  const SafetensorsFile::Entry* entry = file.Find(param.name);
  if (entry == nullptr) {
    misfits.Add(fmt::format("has no `{}`, which the model has", param.name));
  } else if (entry->shape != param.shape) {
    misfits.Add(fmt::format("`{}` is {}, the model has {}", param.name, FormatSizes(entry->shape),
                            FormatSizes(param.shape)));
  } else if (!HoldsExactly(master, entry->dtype)) {
    misfits.Add(fmt::format("`{}` is {}, which master weights in {} cannot hold exactly",
                            param.name, *SafetensorsTypeName(entry->dtype),
                            *SafetensorsTypeName(master)));
  }
}

}  // namespace

Result<ParamSource> ParamsFromFile(const Model& model, const std::string& path) {
  HEDDLE_TRY(SafetensorsFile file, SafetensorsFile::Open(path));
  DType master = model.numerics.compute == DType::kF64 ? DType::kF64 : DType::kF32;
  Misfits misfits(path);
  std::unordered_set<std::string_view> names;
  for (const ParamSpec& param : model.params) {
    names.insert(param.name);
    CheckEntry(file, param, master, misfits);
  }
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    if (!names.contains(entry.name))
      misfits.Add(fmt::format("has `{}`, which the model has not", entry.name));
  }
  if (!misfits.empty()) return misfits.Take();
  return ParamSource([&model, file = std::move(file), master](size_t param) -> Result<at::Tensor> {
    HEDDLE_TRY(at::Tensor tensor, ReadTensor(file, *file.Find(model.params[param].name)));
    return tensor.to(ToScalarType(master));
  });
}

}  // namespace heddle
