// HfConfig: the config.json of a Hugging Face folder, read or written field by field.
//
// A family lists the fields of its class once, for both directions:
//
//   config.Int("q_lora_rank", c.mla.q_rank, 0);
//
// sets c.mla.q_rank from the file, or writes it. The last argument is the value of a key that is
// missing or null; without it, a missing key is an error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <nlohmann/json.hpp>

#include "heddle/core/base/json_fields.h"
#include "heddle/run/models/family.h"

namespace heddle::run {

class HfConfig {
 public:
  // The only value that a field can have.
  using Scalar = std::variant<bool, int64_t, double, std::string_view>;

  // Reads the root of `document`, which must outlive this.
  explicit HfConfig(const JsonDocument& document)
      : mistakes_(std::in_place, document, Diag::kFileRead),
        fields_(std::in_place, document.root(), *mistakes_, JsonFields::Nulls::kMissing) {}
  // Writes the config of a class of transformers.
  explicit HfConfig(std::string_view class_name) : class_name_(class_name) {}
  HfConfig(const HfConfig&) = delete;

  bool reading() const { return fields_.has_value(); }
  void Int(const char* key, int64_t& value, std::optional<int64_t> missing = std::nullopt);
  void Number(const char* key, double& value, std::optional<double> missing = std::nullopt);
  void Bool(const char* key, bool& value, bool missing);
  // A size for which null means 0.
  void Window(const char* key, int64_t& value, int64_t missing);
  // A field that must have this value: another value in the file would change the results.
  void Fixed(const char* key, const Scalar& value);

  // Reading. Null counts as missing.
  std::optional<JsonValue> Find(const char* key);
  std::string Text(const char* key, std::string missing) { return fields_->Text(key, missing); }
  // Like Fixed, but the field is not written.
  void Expect(const char* key, const Scalar& value);
  // Adds the mistake "`key` message".
  template <typename... Args>
  void Wrong(const char* key, fmt::format_string<Args...> format, Args&&... args) {
    fields_->Wrong(key, format, std::forward<Args>(args)...);
  }

  // Writing.
  void Write(const char* key, nlohmann::ordered_json value) {
    if (!reading()) written_[key] = std::move(value);
  }
  // Fails unless `fits`: the class cannot compute the model. `what` completes "the class has
  // {what}".
  void Require(bool fits, std::string_view what);

  // Reads or writes the fields that the classes of all decoders have.
  void Decoder(ModelConfig& config, const HfFields& common);
  // Fails for constants that only some classes have, and for quantized weights. Writes that the
  // model has no special tokens.
  void Plain(const ModelConfig& config, const HfFields& common);

  // Fails with all mistakes of the file, or with the first of a model that cannot be written.
  Status status();
  std::string text() const { return written_.dump(2) + "\n"; }

 private:
  void ReadRope(ModelConfig& config, const HfFields& common);
  void ReadLayerRope(ModelConfig& config);
  void ReadScaling(ModelConfig& config);
  void ReadYarn(ModelConfig& config);
  void WriteRope(const ModelConfig& config);
  void Softcaps(ModelConfig& config);
  void LayerTypes(ModelConfig& config, const HfFields& common);

  // While reading.
  std::optional<JsonMistakes> mistakes_;
  std::optional<JsonFields> fields_;
  // While writing.
  std::string_view class_name_;
  nlohmann::ordered_json written_;
  std::string mistake_;
};

// Fails for mixtures that classes with a plain softmax router cannot compute.
void RequireSoftmaxMixture(HfConfig& file, const MoeConfig& moe);

}  // namespace heddle::run
