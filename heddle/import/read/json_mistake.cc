#include "heddle/import/read/json_mistake.h"

#include <nlohmann/json.hpp>

namespace heddle {
namespace {

using nlohmann::json;

// What simdjson takes.
constexpr size_t kDeepestJson = 1024;

// Keeps nothing but the depth and the place where reading ends.
class MistakeFinder : public json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(size_t) override { return ++depth_ <= kDeepestJson; }
  bool start_array(size_t) override { return ++depth_ <= kDeepestJson; }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    at_ = position > 0 ? position - 1 : 0;
    return false;
  }

  std::optional<size_t> at() const { return at_; }

 private:
  size_t depth_ = 0;
  std::optional<size_t> at_;
};

}  // namespace

std::optional<size_t> FindJsonMistake(std::string_view text) {
  MistakeFinder finder;
  json::sax_parse(text, &finder);
  return finder.at();
}

}  // namespace heddle
