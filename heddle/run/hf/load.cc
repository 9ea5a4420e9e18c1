#include "heddle/run/hf/load.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "heddle/core/base/file.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/hf/folder.h"
#include "heddle/run/hf/names.h"
#include "heddle/run/train/weight_load_errors.h"

namespace heddle::run {
namespace {

// Tensors of a folder that the model does not need:
//
// - the copy of a tied table
// - rotation tables, which older versions of transformers wrote
// - masks and others that the family lists
// - layers after the last, which predict further tokens
bool MayBeLeft(const ModelConfig& config, const std::string& name) {
  if (config.tied && name == "lm_head.weight") return true;
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  for (std::string_view suffix : config.family->hf.unused) {
    if (name.ends_with(suffix)) return true;
  }
  std::string_view kLayers = config.family->hf.layers;
  if (!config.family->hf.has_more_layers || !name.starts_with(kLayers)) return false;
  int64_t layer = 0;
  auto [stop, error] =
      std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return error == std::errc() && layer >= config.n_layers;
}

class FolderLoader {
 public:
  FolderLoader(Model& model, const std::string& folder, HfTensors tensors)
      : model_(model), tensors_(std::make_shared<HfTensors>(std::move(tensors))), errors_(folder) {}

  Result<ParamSource> Run() {
    bare_ = std::ranges::none_of(tensors_->places(), [&](const auto& place) {
      return place.first.starts_with(model_.config.family->hf.model);
    });
    for (const ParamSpec& param : model_.params)
      weights_.push_back(Checked(param.name, param.shape, master()));
    for (const StepInput& buffer : model_.inputs) {
      if (IsState(buffer)) Checked(buffer.name, buffer.shape, DType::kF32);
    }
    for (const auto& [name, place] : tensors_->places()) {
      if (!used_.contains(name) && !MayBeLeft(model_.config, name))
        errors_.Add(fmt::format("has `{}`, which the model does not have", name));
    }
    if (!errors_.empty()) return errors_.Take();
    HEDDLE_RETURN_IF_ERROR(LoadBuffers());
    return ParamSource([weights = std::move(weights_), tensors = tensors_, type = master()](
                           size_t param) { return Read(*tensors, weights[param], type); });
  }

 private:
  DType master() const {
    return model_.numerics.compute == DType::kF64 ? DType::kF64 : DType::kF32;
  }

  HfWeight WeightOf(const std::string& name) const {
    HfWeight weight = HfWeightOf(model_.config, name);
    std::string_view prefix = model_.config.family->hf.model;
    for (std::string& part : weight.names) {
      if (bare_ && part.starts_with(prefix)) part.erase(0, prefix.size());
    }
    return weight;
  }

  HfWeight Checked(const std::string& name, std::vector<int64_t> shape, DType type) {
    HfWeight weight = WeightOf(name);
    shape = HfShape(weight, std::move(shape));
    for (const std::string& part : weight.names) {
      used_.insert(part);
      const HfTensors::Place* place = tensors_->Find(part);
      errors_.Check(part, place == nullptr ? nullptr : place->entry, shape, type);
    }
    return weight;
  }

  Status LoadBuffers() {
    for (const StepInput& buffer : model_.inputs) {
      if (!IsState(buffer)) continue;
      HEDDLE_TRY(model_.state[buffer.name], Read(*tensors_, WeightOf(buffer.name), DType::kF32));
    }
    return Done{};
  }

  static Result<at::Tensor> Read(const HfTensors& tensors, const HfWeight& weight, DType type) {
    std::vector<at::Tensor> parts;
    for (const std::string& name : weight.names) {
      const HfTensors::Place* place = tensors.Find(name);
      HEDDLE_TRY(at::Tensor part, ReadTensor(*place->file, *place->entry));
      parts.push_back(part.to(ToScalarType(type)));
    }
    return FromHf(weight, parts);
  }

  Model& model_;
  // Shared with the source.
  std::shared_ptr<HfTensors> tensors_;
  // No name has the family's prefix.
  bool bare_ = false;
  WeightLoadErrors errors_;
  std::unordered_set<std::string> used_;
  std::vector<HfWeight> weights_;
};

}  // namespace

Result<ParamSource> LoadParams(Model& model, const std::string& path) {
  if (!IsDirectory(path)) return ParamsFromFile(model, path);
  HEDDLE_TRY(HfTensors tensors, HfTensors::Open(path));
  return FolderLoader(model, path, std::move(tensors)).Run();
}

}  // namespace heddle::run
