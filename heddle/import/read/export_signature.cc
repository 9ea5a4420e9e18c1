#include "heddle/import/read/export_signature.h"

#include <algorithm>

namespace heddle {

// Calls `on_tag(tag)` for the tag of a union, and `on_text(field, text)` for each text in what it holds.
template <typename OnTag, typename OnText>
bool ExportSignature::ReadSpec(JsonValue spec, OnTag&& on_tag, OnText&& on_text) {
  if (!JsonWalk::IsObject(spec)) return walk_.Skip(spec);
  bool found = false;
  return walk_.Fields(spec, [&](std::string_view tag, JsonValue value) {
    if (found || JsonWalk::IsNull(value)) return walk_.Skip(value);
    found = true;
    on_tag(tag);
    if (!JsonWalk::IsObject(value)) return walk_.Skip(value);
    return walk_.Fields(value, [&](std::string_view field, JsonValue fact) {
      std::string_view text;
      if (!walk_.Text(fact, text)) return false;
      if (!text.empty()) on_text(field, text);
      return true;
    });
  });
}

bool ExportSignature::Read(JsonValue signature) {
  return walk_.Fields(signature, [&](std::string_view key, JsonValue value) {
    if (!JsonWalk::IsArray(value)) return walk_.Skip(value);
    if (IsKey(key, "input_specs"))
      return walk_.Items(value, [&](JsonValue spec) { return ReadInput(spec); });
    if (IsKey(key, "output_specs"))
      return walk_.Items(value, [&](JsonValue spec) { return ReadOutput(spec); });
    return walk_.Skip(value);
  });
}

bool ExportSignature::ReadInput(JsonValue spec) {
  Input& input = inputs_.emplace_back();
  std::string_view label;
  return ReadSpec(
      spec,
      [&](std::string_view tag) {
        input.role = InputRole::kBatch;
        if (IsKey(tag, "parameter")) {
          input.role = InputRole::kParam;
          label = "parameter_name";
        } else if (IsKey(tag, "buffer")) {
          input.role = InputRole::kBuffer;
          label = "buffer_name";
        } else if (IsKey(tag, "tensor_constant")) {
          input.role = InputRole::kBuffer;
          label = "tensor_constant_name";
        }
      },
      [&](std::string_view field, std::string_view text) {
        if (field == label && !input.label) input.label = program_.Word(text);
      });
}

bool ExportSignature::ReadOutput(JsonValue spec) {
  constexpr std::string_view kTargets[] = {"parameter_name", "buffer_name", "user_input_name"};
  Output& output = outputs_.emplace_back();
  return ReadSpec(
      spec,
      [&](std::string_view tag) {
        output.role = tag == "loss_output"             ? OutputRole::kLoss
                      : tag == "gradient_to_parameter" ? OutputRole::kGrad
                      : tag.ends_with("_mutation")     ? OutputRole::kUpdate
                                                       : OutputRole::kMetric;
      },
      [&](std::string_view field, std::string_view text) {
        if (std::ranges::find(kTargets, field) != std::end(kTargets))
          output.target = program_.Word(text);
      });
}

}  // namespace heddle
