// JsonWalk: reads a JSON text once, from front to back, with simdjson's on-demand reader. Nothing is built of it.
//
// What reads something answers whether it could. The first thing that could not be read is kept, with its place: the text is no JSON, or it
// is and means nothing. Whoever is handed a value reads or skips it, so that all of the text is checked.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/core.h>
#include <simdjson.h>

namespace heddle {

using JsonValue = simdjson::ondemand::value;

class JsonWalk {
 public:
  // `text` outlives this. It is read where it lies if it has room behind it, as ReadFile leaves it, and copied if not.
  explicit JsonWalk(const std::string& text);

  // Calls `on_field(key, value)` for each field of the object that the text is.
  template <typename OnField>
  bool Root(OnField&& on_field) {
    simdjson::ondemand::document document;
    simdjson::ondemand::object object;
    if (parser_.iterate(text_).get(document) != simdjson::SUCCESS ||
        document.get_object().get(object) != simdjson::SUCCESS)
      return false;
    // At the end there is nothing left to point at.
    return EachField(object, on_field) &&
           document.current_location().error() == simdjson::OUT_OF_BOUNDS;
  }
  // Of a value that is an object.
  template <typename OnField>
  bool Fields(JsonValue value, OnField&& on_field) {
    simdjson::ondemand::object object;
    return value.get_object().get(object) == simdjson::SUCCESS && EachField(object, on_field);
  }
  template <typename OnField>
  bool EachField(simdjson::ondemand::object& object, OnField&& on_field) {
    for (auto found : object) {
      simdjson::ondemand::field field;
      std::string_view key;
      if (std::move(found).get(field) != simdjson::SUCCESS || !Key(field, key) ||
          !on_field(key, field.value()))
        return false;
    }
    return true;
  }
  // Calls `on_item(value)` for each item of a value that is an array.
  template <typename OnItem>
  bool Items(JsonValue value, OnItem&& on_item) {
    simdjson::ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) return false;
    for (auto found : array) {
      JsonValue item;
      // Only a temporary gives its value away.
      if (decltype(found)(found).get(item) != simdjson::SUCCESS || !on_item(item)) return false;
    }
    return true;
  }

  static bool IsObject(JsonValue& value) { return First(value) == '{'; }
  static bool IsArray(JsonValue& value) { return First(value) == '['; }
  static bool IsText(JsonValue& value) { return First(value) == '"'; }
  static bool IsNull(JsonValue& value) { return First(value) == 'n'; }
  static bool IsBool(JsonValue& value) { return First(value) == 't' || First(value) == 'f'; }

  bool Skip(JsonValue value) { return Skip(value, 0); }
  // Passes over an object whose text is known to be good.
  static bool PassObject(JsonValue value) {
    simdjson::ondemand::object object;
    return value.get_object().get(object) == simdjson::SUCCESS &&
           object.raw_json().error() == simdjson::SUCCESS;
  }
  // Empty where it is no text. Texts live as long as this does.
  bool Text(JsonValue value, std::string_view& text);
  // None where it is no whole number of 64 bits.
  bool Int(JsonValue value, std::optional<int64_t>& number);
  bool Bool(JsonValue value, bool& truth) {
    return value.get_bool().get(truth) == simdjson::SUCCESS;
  }
  bool Number(JsonValue value, simdjson::ondemand::number& number) {
    return value.get_number().get(number) == simdjson::SUCCESS;
  }

  // Where a value begins in the text.
  size_t Place(JsonValue& value) const {
    return static_cast<size_t>(value.raw_json_token().data() - text_.data());
  }
  // From where a value begins to the end of the text.
  std::string_view TextFrom(JsonValue& value) const { return text_.substr(Place(value)); }
  // Always false.
  template <typename... Args>
  bool Fail(size_t place, fmt::format_string<Args...> format, Args&&... args) {
    mistake_ = {place, fmt::format(format, std::forward<Args>(args)...)};
    return false;
  }
  struct Mistake {
    size_t place;
    std::string message;
  };
  // What Fail was told; none where the text itself is broken.
  const std::optional<Mistake>& mistake() const { return mistake_; }

 private:
  static char First(JsonValue& value) { return value.raw_json_token()[0]; }
  static bool Key(simdjson::ondemand::field& field, std::string_view& key) {
    const char* begin = field.key().raw();
    const char* end = begin;
    while (*end != '"' && *end != '\\') ++end;
    key = {begin, static_cast<size_t>(end - begin)};
    return *end == '"' || field.unescaped_key().get(key) == simdjson::SUCCESS;
  }
  bool Skip(JsonValue value, int depth);

  // simdjson looks a little further than it reads.
  simdjson::padded_string copy_;
  simdjson::padded_string_view text_;
  simdjson::ondemand::parser parser_;
  std::optional<Mistake> mistake_;
};

// Quicker than `==`, which does not know the size when it compares.
template <size_t kSize>
bool IsKey(std::string_view key, const char (&name)[kSize]) {
  return key.size() == kSize - 1 && std::memcmp(key.data(), name, kSize - 1) == 0;
}

}  // namespace heddle
