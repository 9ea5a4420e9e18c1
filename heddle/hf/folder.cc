#include "heddle/hf/folder.h"

#include <sys/stat.h>

#include "heddle/base/file.h"
#include "heddle/hf/config.h"
#include "heddle/hf/json_reader.h"

namespace heddle {
namespace {

constexpr std::string_view kWhole = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

std::string In(const std::string& folder, std::string_view file) {
  return fmt::format("{}/{}", folder, file);
}

bool Exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

// Diagnostics about what is in a file name that file.
Failure At(const std::string& path, Failure failure) {
  for (Diagnostic& diagnostic : failure.diagnostics) {
    if (diagnostic.file.empty()) diagnostic.file = path;
  }
  return failure;
}

// Names of tensors, by the file that has them.
Result<std::map<std::string, std::vector<std::string>>> ParseIndex(std::string_view text) {
  HEDDLE_TRY(nlohmann::json object, ParseJsonObject(text));
  auto map = object.find("weight_map");
  if (map == object.end() || !map->is_object())
    return Error(Diag::kFileRead, "has no object `weight_map`");
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !file.get_ref<const std::string&>().ends_with(".safetensors") ||
        file.get_ref<const std::string&>().find('/') != std::string::npos)
      return Error(Diag::kFileRead, "`{}` is in {}, expected a .safetensors file of this folder",
                   name, file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    files[file.get<std::string>()].push_back(name);
  }
  return files;
}

}  // namespace

Result<ModelConfig> ReadHfConfig(const std::string& folder) {
  std::string path = In(folder, "config.json");
  HEDDLE_TRY(std::string text, ReadRegularFile(path));
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
  std::map<std::string, std::vector<std::string>> files;
  std::string index = In(folder, kIndex);
  if (Exists(index)) {
    HEDDLE_TRY(std::string text, ReadRegularFile(index));
    auto parsed = ParseIndex(text);
    if (!parsed.ok()) return At(index, std::move(parsed).failure());
    files = *std::move(parsed);
  } else if (Exists(In(folder, kWhole))) {
    files.emplace(kWhole, std::vector<std::string>());
  } else {
    return At(folder, Error(Diag::kFileRead, "has neither {} nor {}", kWhole, kIndex));
  }
  for (const auto& [file, listed] : files) {
    HEDDLE_TRY(SafetensorsFile opened, SafetensorsFile::Open(In(folder, file)));
    tensors.files_.push_back(std::make_unique<SafetensorsFile>(std::move(opened)));
    const SafetensorsFile& kept = *tensors.files_.back();
    for (const SafetensorsFile::Entry& entry : kept.entries()) {
      if (!tensors.places_.try_emplace(entry.name, Place{&kept, &entry}).second)
        return At(kept.path(),
                  Error(Diag::kFileRead, "has `{}`, which another file of the folder has, too",
                        entry.name));
    }
    for (const std::string& name : listed) {
      if (kept.Find(name) == nullptr)
        return At(index, Error(Diag::kFileRead, "`{}` is not in {}", name, file));
    }
  }
  return tensors;
}

}  // namespace heddle
