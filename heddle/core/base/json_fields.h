// Reads a JSON object field by field and collects all mistakes, each with its path and place.
//
//   JsonMistakes mistakes(document, Diag::kClusterFile);
//   JsonFields fields(document.root(), mistakes);
//   int64_t ports = fields.Count("ports", 1, 64);
//   fields.Finish();
//   if (!mistakes.empty()) return mistakes.failure();
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/json.h"

namespace heddle {

// The mistakes of one document, at most kMost of them.
class JsonMistakes {
 public:
  JsonMistakes(const JsonDocument& document, Diag kind) : document_(document), kind_(kind) {}

  template <typename... Args>
  void Add(JsonValue at, fmt::format_string<Args...> format, Args&&... args) {
    AddText(at, fmt::format(format, std::forward<Args>(args)...));
  }
  bool empty() const { return list_.empty(); }
  // A hostile file may have any number of mistakes. Further ones are dropped.
  bool full() const { return list_.size() == kMost; }
  Failure failure() { return {std::move(list_)}; }

 private:
  static constexpr size_t kMost = 20;
  void AddText(JsonValue at, std::string_view message);

  const JsonDocument& document_;
  Diag kind_;
  Diagnostics list_;
};

// Reads a list of whole numbers that are not negative; empty after a mistake.
std::vector<int64_t> ReadCounts(JsonValue list, JsonMistakes& mistakes);

// One object. A missing or wrong field is a mistake, and reads as its smallest value or as
// `otherwise`. A field with an `otherwise` is optional.
class JsonFields {
 public:
  // Whether a null field is an error or counts as missing.
  enum class Nulls { kWrong, kMissing };

  JsonFields(JsonValue object, JsonMistakes& mistakes, Nulls nulls = Nulls::kWrong);

  bool Has(std::string_view name) { return Find(name).has_value(); }
  std::optional<JsonValue> Find(std::string_view name);
  double Positive(std::string_view name, std::optional<double> otherwise = {});
  double NotNegative(std::string_view name, std::optional<double> otherwise = {});
  // Above 0 and at most 1.
  double Share(std::string_view name, std::optional<double> otherwise = {});
  int64_t Count(std::string_view name, int64_t least, int64_t most,
                std::optional<int64_t> otherwise = {});
  bool Flag(std::string_view name, bool otherwise);
  std::string Text(std::string_view name, std::optional<std::string> otherwise = {});
  // The position of the text among `choices`.
  size_t Choice(std::string_view name, std::span<const std::string_view> choices,
                std::optional<size_t> otherwise = {});
  JsonFields Object(std::string_view name);
  // The elements of a list of objects. The list is empty if the field is missing and not required.
  std::vector<JsonFields> Objects(std::string_view name, bool required = true);
  std::vector<std::string> Texts(std::string_view name);
  // A list of lists, each of `width` numbers that are not negative.
  std::vector<std::vector<double>> Rows(std::string_view name, size_t width);
  // A list of whole numbers that are not negative.
  std::vector<int64_t> Counts(std::string_view name);
  // All fields, sorted by name.
  std::span<const std::pair<std::string_view, JsonValue>> fields() const { return fields_; }

  // Reports fields that were never read.
  void Finish();

  // Adds the mistake "`path.name` message" at the field, or at the object if the field is missing.
  template <typename... Args>
  void Wrong(std::string_view name, fmt::format_string<Args...> format, Args&&... args) {
    AddWrong(name, fmt::format(format, std::forward<Args>(args)...));
  }
  bool has_mistakes() const { return !mistakes_->empty(); }

 private:
  // A missing object, which has already been reported if it is required.
  JsonFields(JsonMistakes& mistakes, Nulls nulls) : mistakes_(&mistakes), nulls_(nulls) {}
  std::optional<JsonValue> Require(std::string_view name, bool required);
  void AddWrong(std::string_view name, std::string_view message);
  double Number(std::string_view name, std::optional<double> otherwise, double least,
                std::string_view expected, bool (*good)(double));

  std::optional<JsonValue> object_;
  // Sorted by name, because an object may have very many fields.
  std::vector<std::pair<std::string_view, JsonValue>> fields_;
  JsonMistakes* mistakes_;
  Nulls nulls_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace heddle
