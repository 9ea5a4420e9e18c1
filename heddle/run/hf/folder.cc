#include "heddle/run/hf/folder.h"

#include <algorithm>

#include "heddle/core/base/file.h"
#include "heddle/core/base/json.h"
#include "heddle/run/checkpoint/disk.h"
#include "heddle/run/hf/config.h"
#include "heddle/run/hf/export_folder.h"

namespace heddle::run {
namespace {

std::string In(const std::string& folder, std::string_view file) {
  return fmt::format("{}/{}", folder, file);
}

// Adds the file to diagnostics about its content.
Failure At(const std::string& path, Failure failure) {
  for (Diagnostic& diagnostic : failure.diagnostics) {
    if (diagnostic.file.empty()) diagnostic.file = path;
  }
  return failure;
}

// Names of tensors, by the file that contains them.
using TensorsByFile = std::map<std::string, std::vector<std::string>>;

Result<TensorsByFile> ParseIndex(std::string_view text) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(text), "", Diag::kFileRead));
  std::optional<JsonValue> map = document.root().Find("weight_map");
  if (!map || !map->is_object()) return Error(Diag::kFileRead, "has no object `weight_map`");
  TensorsByFile files;
  for (auto [name, file] : map->fields()) {
    if (!file.is_string() || !file.string().ends_with(".safetensors") ||
        file.string().find('/') != std::string::npos)
      return document.Fail(file, "`{}` is in {}, expected a .safetensors file of this folder", name,
                           Shown(file));
    files[std::string(file.string())].emplace_back(name);
  }
  return files;
}

// Returns the files of the folder's weights. Fails if the folder has other files that look like its
// weights: they belong to another export, and the user could mean either.
Result<TensorsByFile> FindFiles(const std::string& folder) {
  HEDDLE_TRY(std::vector<std::string> names, NamesIn(folder));
  auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  bool indexed = has(kHfIndex);
  TensorsByFile files;
  if (indexed) {
    std::string index = In(folder, kHfIndex);
    HEDDLE_TRY(std::string text, ReadFile(index));
    Result<TensorsByFile> parsed = ParseIndex(text);
    if (!parsed.ok()) return At(index, std::move(parsed).failure());
    files = *std::move(parsed);
  } else if (has(kHfWhole)) {
    files.emplace(kHfWhole, std::vector<std::string>());
  } else {
    return At(folder, Error(Diag::kFileRead, "contains neither {} nor {}", kHfWhole, kHfIndex));
  }
  for (const auto& [file, tensors] : files) {
    if (!has(file))
      return At(folder, Error(Diag::kFileRead, "has no {}, but {} lists it", file, kHfIndex));
  }
  for (const std::string& name : names) {
    if ((name != kHfWhole && !IsHfShardName(name)) || files.contains(name)) continue;
    return At(folder,
              Error(Diag::kFileRead,
                    "has {}, which {}; two exports are mixed: remove the files of one, or export "
                    "again",
                    name,
                    indexed ? fmt::format("{} does not list", kHfIndex)
                            : fmt::format("is not part of {}", kHfWhole)));
  }
  return files;
}

}  // namespace

Result<ModelConfig> ReadHfConfig(const std::string& folder) {
  std::string path = In(folder, "config.json");
  HEDDLE_TRY(std::string text, ReadFile(path));
  Result<ModelConfig> config = ParseHfConfig(text);
  if (!config.ok()) return At(path, std::move(config).failure());
  return config;
}

const HfTensors::Place* HfTensors::Find(const std::string& name) const {
  auto at = places_.find(name);
  return at == places_.end() ? nullptr : &at->second;
}

Result<HfTensors> HfTensors::Open(const std::string& folder) {
  HfTensors tensors;
  HEDDLE_TRY(TensorsByFile files, FindFiles(folder));
  for (const auto& [file, listed] : files) {
    HEDDLE_TRY(SafetensorsFile opened, SafetensorsFile::Open(In(folder, file)));
    tensors.files_.push_back(std::make_unique<SafetensorsFile>(std::move(opened)));
    const SafetensorsFile& kept = *tensors.files_.back();
    for (const SafetensorsFile::Entry& entry : kept.entries()) {
      if (!tensors.places_.try_emplace(entry.name, Place{&kept, &entry}).second)
        return At(
            kept.path(),
            Error(Diag::kFileRead, "has `{}`, but so has another file of the folder", entry.name));
    }
    for (const std::string& name : listed) {
      if (kept.Find(name) == nullptr)
        return At(In(folder, kHfIndex), Error(Diag::kFileRead, "`{}` is not in {}", name, file));
    }
    // A single file has no index.
    if (listed.empty() || listed.size() == kept.entries().size()) continue;
    auto listed_has = [&](const std::string& name) {
      return std::ranges::find(listed, name) != listed.end();
    };
    for (const SafetensorsFile::Entry& entry : kept.entries()) {
      if (!listed_has(entry.name))
        return At(kept.path(),
                  Error(Diag::kFileRead, "has `{}`, which {} does not list", entry.name, kHfIndex));
    }
  }
  return tensors;
}

}  // namespace heddle::run
