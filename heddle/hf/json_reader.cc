#include "heddle/hf/json_reader.h"

#include <unordered_set>
#include <vector>

namespace heddle {
namespace {

using Json = nlohmann::json;

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

}  // namespace heddle
