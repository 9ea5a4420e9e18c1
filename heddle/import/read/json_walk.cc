#include "heddle/import/read/json_walk.h"

namespace heddle {
namespace {

// A little less than simdjson reads.
constexpr int kDeepestValue = 1000;

}  // namespace

JsonWalk::JsonWalk(const std::string& text) : text_(text) {
  if (text_.padding() >= simdjson::SIMDJSON_PADDING) return;
  copy_ = simdjson::padded_string(text);
  text_ = copy_;
}

bool JsonWalk::Text(JsonValue value, std::string_view& text) {
  text = {};
  if (!IsText(value)) return Skip(value);
  // Up to the next token. Most texts have nothing that stands for something else.
  std::string_view token = value.raw_json_token();
  if (std::memchr(token.data(), '\\', token.size()) != nullptr)
    return value.get_string().get(text) == simdjson::SUCCESS;
  simdjson::ondemand::raw_json_string raw;
  if (value.get_raw_json_string().get(raw) != simdjson::SUCCESS) return false;
  text = token.substr(1, token.rfind('"') - 1);
  return true;
}

bool JsonWalk::Int(JsonValue value, std::optional<int64_t>& number) {
  number.reset();
  char first = First(value);
  if (first != '-' && (first < '0' || first > '9')) return Skip(value);
  simdjson::ondemand::number any;
  if (!Number(value, any)) return false;
  if (any.is_int64()) number = any.get_int64();
  return true;
}

bool JsonWalk::Skip(JsonValue value, int depth) {
  if (depth > kDeepestValue)
    return Fail(Place(value), "values are nested more than {} deep", kDeepestValue);
  switch (First(value)) {
    case '{':
      return Fields(value,
                    [&](std::string_view, JsonValue field) { return Skip(field, depth + 1); });
    case '[': return Items(value, [&](JsonValue item) { return Skip(item, depth + 1); });
    case '"': {
      std::string_view text;
      return Text(value, text);
    }
    case 't':
    case 'f': {
      bool truth = false;
      return Bool(value, truth);
    }
    case 'n': {
      bool null = false;
      return value.is_null().get(null) == simdjson::SUCCESS && null;
    }
    default: {
      simdjson::ondemand::number number;
      return Number(value, number);
    }
  }
}

}  // namespace heddle
