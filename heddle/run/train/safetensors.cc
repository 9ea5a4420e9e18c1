#include "heddle/run/train/safetensors.h"

#include <unordered_set>

#include <ATen/ops/empty.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/checkpoint/safetensors_header.h"
#include "heddle/run/train/weight_load_errors.h"

namespace heddle::run {

Result<at::Tensor> ReadTensor(const SafetensorsFile& file, const SafetensorsFile::Entry& entry) {
  at::Tensor tensor = at::empty(entry.shape, ToScalarType(entry.dtype));
  HEDDLE_RETURN_IF_ERROR(file.ReadBytes(entry.begin, entry.end - entry.begin, tensor.data_ptr()));
  return tensor;
}

Result<std::string> FormatSafetensors(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  size_t size = 0;
  for (const auto& [name, tensor] : tensors) {
    HEDDLE_TRY(DType dtype, FromScalarType(tensor.scalar_type()));
    infos.push_back({name, dtype, tensor.sizes().vec()});
    size += tensor.nbytes();
  }
  HEDDLE_TRY(std::string content, FormatSafetensorsHeader(infos, metadata));
  content.reserve(content.size() + size);
  for (const auto& [name, tensor] : tensors) {
    at::Tensor plain = tensor.cpu().contiguous();
    content.append(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  }
  return content;
}

Result<ParamSource> ParamsFromFile(const Model& model, const std::string& path) {
  HEDDLE_TRY(SafetensorsFile file, SafetensorsFile::Open(path));
  DType master = model.numerics.compute == DType::kF64 ? DType::kF64 : DType::kF32;
  WeightLoadErrors errors(path);
  std::unordered_set<std::string_view> names;
  for (const ParamSpec& param : model.params) {
    names.insert(param.name);
    errors.Check(param.name, file.Find(param.name), param.shape, master);
  }
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    if (!names.contains(entry.name))
      errors.Add(fmt::format("has a tensor `{}`, which the model does not have", entry.name));
  }
  if (!errors.empty()) return errors.Take();
  return ParamSource([&model, file = std::move(file), master](size_t param) -> Result<at::Tensor> {
    HEDDLE_TRY(at::Tensor tensor, ReadTensor(file, *file.Find(model.params[param].name)));
    return tensor.to(ToScalarType(master));
  });
}

}  // namespace heddle::run
