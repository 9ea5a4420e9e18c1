#include "heddle/hf/json_reader.h"

#include <cmath>
#include <unordered_set>
#include <vector>

namespace heddle {
namespace {

using Json = nlohmann::json;

// As text for a message: short, whatever it is.
std::string Shown(const Json& value) {
  std::string text = value.is_structured()
                         ? value.type_name()
                         : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kMost = 60;
  if (text.size() <= kMost) return text;
  text.resize(kMost);
  text += "...";
  return text;
}

}  // namespace

Result<Json> ParseJsonObject(std::string_view text) {
  constexpr int kMostDepth = 16;
  std::vector<std::unordered_set<std::string>> keys;
  std::string twice;
  bool too_deep = false;
  auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      if (level >= keys.size()) keys.resize(level + 1);
      keys[level].clear();
    }
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys[level - 1].insert(key).second && twice.empty()) twice = key;
    }
    too_deep |= depth > kMostDepth;
    return !too_deep;
  };
  Json parsed;
  try {
    parsed = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    return Error(Diag::kFileRead, "is no JSON at byte {} of {}", error.byte, text.size());
  }
  if (too_deep)
    return Error(Diag::kFileRead, "has values inside of values, more than {} deep", kMostDepth);
  if (!twice.empty()) return Error(Diag::kFileRead, "has `{}` twice", twice);
  if (!parsed.is_object()) return Error(Diag::kFileRead, "is no JSON object");
  return parsed;
}

const Json* JsonReader::Find(const char* key) const {
  auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void JsonReader::Fail(std::string message) {
  if (mistake_.empty()) mistake_ = std::move(message);
}

void JsonReader::Expect(const char* key, std::string_view what) {
  const Json* value = Find(key);
  Fail(value == nullptr
           ? fmt::format("has no `{}{}`, expected {}", prefix_, key, what)
           : fmt::format("`{}{}` is {}, expected {}", prefix_, key, Shown(*value), what));
}

int64_t JsonReader::Int(const char* key, std::optional<int64_t> missing) {
  const Json* value = Find(key);
  if (value == nullptr && missing) return *missing;
  if (value != nullptr && value->is_number_unsigned() && value->get<uint64_t>() <= INT64_MAX)
    return value->get<int64_t>();
  Expect(key, "a whole number of 0 or more");
  return missing.value_or(0);
}

double JsonReader::Number(const char* key, std::optional<double> missing) {
  const Json* value = Find(key);
  if (value == nullptr && missing) return *missing;
  if (value != nullptr && value->is_number()) {
    auto number = value->get<double>();
    if (std::isfinite(number) && number >= 0) return number;
  }
  Expect(key, "a number of 0 or more");
  return missing.value_or(0);
}

bool JsonReader::Bool(const char* key, bool missing) {
  const Json* value = Find(key);
  if (value == nullptr) return missing;
  if (value->is_boolean()) return value->get<bool>();
  Expect(key, "true or false");
  return missing;
}

std::string JsonReader::Text(const char* key, std::string_view missing) {
  const Json* value = Find(key);
  if (value == nullptr) return std::string(missing);
  if (value->is_string()) return value->get<std::string>();
  Expect(key, "text");
  return std::string(missing);
}

Status JsonReader::status() const {
  if (mistake_.empty()) return Done{};
  return Error(Diag::kFileRead, "{}", mistake_);
}

}  // namespace heddle
