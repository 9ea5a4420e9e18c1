#include "heddle/run/hf/config.h"

#include <algorithm>

#include "heddle/core/base/json.h"
#include "heddle/core/base/text.h"
#include "heddle/run/models/family.h"
#include "heddle/run/models/hf_config.h"

namespace heddle::run {

Result<ModelConfig> ParseHfConfig(std::string_view text) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(text), "", Diag::kFileRead));
  HfConfig reader(document);
  std::string type = reader.Text("model_type", "");
  std::vector<std::string_view> known;
  for (const Family* family : Families()) {
    for (const HfClass& candidate : family->hf.classes) {
      // Several families can have one class. The first reads its files.
      if (std::ranges::find(known, candidate.type) == known.end()) known.push_back(candidate.type);
      if (candidate.type != type) continue;
      ModelConfig config;
      config.family = family;
      config.flavor = "hf";
      reader.Decoder(config, candidate.common);
      candidate.fields(reader, config);
      HEDDLE_RETURN_IF_ERROR(reader.status());
      HEDDLE_RETURN_IF_ERROR(CheckConfig(config));
      return config;
    }
  }
  HEDDLE_RETURN_IF_ERROR(reader.status());
  return Error(Diag::kUnknownModel, "`model_type` is `{}`{}; expected one of {}", type,
               NearestHint(type, known), Join(known, ", "));
}

Result<std::string> FormatHfConfig(const ModelConfig& config, std::string_view dtype) {
  std::span<const HfClass> classes = config.family->hf.classes;
  if (classes.empty())
    return Error(Diag::kBadChoice, "transformers has no class for models of family `{}`",
                 config.family->name);
  bool has_experts = config.moe.experts > 0;
  const HfClass* chosen = classes.data();
  for (const HfClass& candidate : classes) {
    if (candidate.has_experts == has_experts) chosen = &candidate;
  }
  HfConfig writer(chosen->name);
  writer.Require(chosen->has_experts == has_experts, has_experts ? "no experts" : "experts");
  writer.Write("architectures", {chosen->name});
  writer.Write("model_type", chosen->type);
  ModelConfig c = config;
  c.head_dim = config.head_size();
  writer.Decoder(c, chosen->common);
  writer.Write("torch_dtype", dtype);
  chosen->fields(writer, c);
  HEDDLE_RETURN_IF_ERROR(writer.status());
  return writer.text();
}

}  // namespace heddle::run
