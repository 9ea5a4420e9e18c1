#include "heddle/checkpoint/json.h"

#include <unordered_set>

namespace heddle {
namespace {

// Not the ordered kind, which takes quadratic time for many names.
using Json = nlohmann::json;

// The parser calls this for every key, with the depth of its object.
class KeysOnce {
 public:
  explicit KeysOnce(int most_depth) : most_depth_(most_depth) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      if (static_cast<size_t>(depth) >= keys_.size()) keys_.resize(static_cast<size_t>(depth) + 1);
      keys_[static_cast<size_t>(depth)].clear();
    }
    if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys_[static_cast<size_t>(depth) - 1].insert(key).second && twice_.empty()) twice_ = key;
    }
    // What is deep may be very deep.
    if (depth > most_depth_) too_deep_ = true;
    return !too_deep_;
  }
  const std::string& twice() const { return twice_; }
  bool too_deep() const { return too_deep_; }

 private:
  int most_depth_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::string twice_;
  bool too_deep_ = false;
};

}  // namespace

std::string JsonFault(const Json::exception& error) {
  // nlohmann: `key 'step' not found`, `array index 2 is out of range`.
  constexpr std::string_view kKey = "key '";
  std::string_view said = error.what();
  size_t begin = said.find(kKey);
  size_t end = said.rfind('\'');
  if (dynamic_cast<const Json::out_of_range*>(&error) == nullptr)
    return "a value in it has the wrong type";
  if (begin == std::string_view::npos || end <= begin + kKey.size()) return "a list is too short";
  begin += kKey.size();
  return fmt::format("it has no `{}`", said.substr(begin, end - begin));
}

Result<Json> ParseJsonStrictly(std::string_view text, std::string_view what, int most_depth) {
  KeysOnce keys(most_depth);
  Json parsed;
  try {
    parsed = Json::parse(text.begin(), text.end(), std::ref(keys));
  } catch (const Json::exception& error) {
    const auto* parse_error = dynamic_cast<const Json::parse_error*>(&error);
    // A number that no double holds has no position.
    if (parse_error == nullptr)
      return Error(Diag::kFileRead, "{} has a number that a double cannot hold", what);
    return Error(Diag::kFileRead, "{} is no JSON at byte {} of {}", what, parse_error->byte,
                 text.size());
  }
  if (keys.too_deep())
    return Error(Diag::kFileRead, "{} has values that are more than {} deep", what, most_depth);
  if (!keys.twice().empty()) return Error(Diag::kFileRead, "{} has `{}` twice", what, keys.twice());
  if (!parsed.is_object()) return Error(Diag::kFileRead, "{} is no JSON object", what);
  return parsed;
}

}  // namespace heddle
