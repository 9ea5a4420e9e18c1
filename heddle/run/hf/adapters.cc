#include "heddle/run/hf/adapters.h"

#include <set>

#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/hf/names.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/train/safetensors.h"

namespace heddle::run {

Result<Model> WithoutAdapters(const Model& model) {
  ModelConfig config = model.config;
  config.lora = {};
  return MakeModel(config, model.batch, model.numerics);
}

ParamSource MergedParams(const Model& model, const ParamSource& params) {
  std::vector<size_t> weights;
  for (size_t i = 0; i < model.params.size(); ++i) {
    if (!IsAdapter(model.params[i].name)) weights.push_back(i);
  }
  return [weights, params, &model](size_t param) -> Result<at::Tensor> {
    size_t at = weights[param];
    HEDDLE_TRY(at::Tensor weight, params(at));
    if (!HasAdapter(model.config.lora, model.params[at].name)) return weight;
    HEDDLE_TRY(at::Tensor a, params(at + 1));
    HEDDLE_TRY(at::Tensor b, params(at + 2));
    return at::add(weight, at::mul(at::mm(b, a), model.numerics.adapter_scale));
  };
}

Result<HfExport> ExportAdapters(const Model& model, const ParamSource& params,
                                const std::string& base, const std::string& folder, DType dtype) {
  constexpr std::string_view kWeight = ".weight";
  at::ScalarType type = ToScalarType(dtype);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::set<std::string> modules;
  HfExport done;
  done.files = 1;
  for (size_t i = 0; i < model.params.size(); ++i) {
    if (!HasAdapter(model.config.lora, model.params[i].name)) continue;
    HfWeight weight = HfWeightOf(model.config, model.params[i].name);
    std::string module = weight.names[0].substr(0, weight.names[0].size() - kWeight.size());
    modules.insert(module.substr(module.rfind('.') + 1));
    HEDDLE_TRY(at::Tensor a, params(i + 1));
    HEDDLE_TRY(at::Tensor b, params(i + 2));
    // B has the rows of the weight, in its order.
    std::vector<at::Tensor> theirs;
    ToHf(weight, b.to(type), theirs);
    for (const auto& [name, tensor] : {std::pair("A", a.to(type)), std::pair("B", theirs[0])}) {
      tensors.emplace_back(fmt::format("base_model.model.{}.lora_{}.weight", module, name), tensor);
      done.bytes.value += static_cast<int64_t>(tensor.nbytes());
    }
  }
  done.tensors = static_cast<int64_t>(tensors.size());
  nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                   {"task_type", "CAUSAL_LM"},
                                   {"base_model_name_or_path", base},
                                   {"r", model.config.lora.rank},
                                   {"lora_alpha", model.config.lora.alpha},
                                   {"lora_dropout", 0.0},
                                   {"bias", "none"},
                                   {"fan_in_fan_out", false},
                                   {"inference_mode", true},
                                   {"target_modules", modules}};
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(folder));
  HEDDLE_TRY(std::string content, FormatSafetensors(tensors, {{"format", "pt"}}));
  HEDDLE_RETURN_IF_ERROR(WriteFile(folder + "/adapter_model.safetensors", content));
  HEDDLE_RETURN_IF_ERROR(WriteFile(folder + "/adapter_config.json", config.dump(2) + "\n"));
  return done;
}

}  // namespace heddle::run
