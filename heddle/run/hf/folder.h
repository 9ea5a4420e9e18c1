// A Hugging Face folder: config.json, and weights in one safetensors file or in several with an
// index.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/run/models/config.h"
#include "heddle/run/train/safetensors.h"

namespace heddle::run {

// Reads config.json of the folder and returns the model that it describes.
Result<ModelConfig> ReadHfConfig(const std::string& folder);

class HfTensors {
 public:
  struct Place {
    const SafetensorsFile* file = nullptr;
    const SafetensorsFile::Entry* entry = nullptr;
  };

  // Reads the index, if there is one, and the headers of all files.
  static Result<HfTensors> Open(const std::string& folder);

  // All tensors by name.
  const std::map<std::string, Place>& places() const { return places_; }
  const Place* Find(const std::string& name) const;

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> places_;
};

}  // namespace heddle::run
