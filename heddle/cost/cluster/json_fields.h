// Reading a JSON file that a person or a tool wrote: field by field, every mistake with its place, and no field overlooked.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/base/result.h"

namespace heddle {

// The JSON in `text`. Refuses what nests deeper than any file of ours, and names that stand twice in one object.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& file);

// The mistakes found in one file.
class JsonMistakes {
 public:
  JsonMistakes(std::string file, Diag kind) : file_(std::move(file)), kind_(kind) {}

  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    // A hostile file may have any number.
    if (list_.size() == kMost) return;
    list_.push_back(MakeDiagnostic(kind_, format, std::forward<Args>(args)...));
    list_.back().file = file_;
  }
  bool empty() const { return list_.empty(); }
  Failure failure() { return {std::move(list_)}; }

 private:
  static constexpr size_t kMost = 20;
  std::string file_;
  Diag kind_;
  Diagnostics list_;
};

// One object of the file. A field that is missing or wrong is a mistake, and reads as its least value or as `otherwise`.
class JsonFields {
 public:
  // `path` leads to the object: empty, or `device.` with its dot.
  JsonFields(const nlohmann::json& object, std::string path, JsonMistakes& mistakes);

  // Who asks for a field knows it.
  bool Has(std::string_view name);
  double Positive(std::string_view name, std::optional<double> otherwise = {});
  double NotNegative(std::string_view name, std::optional<double> otherwise = {});
  // More than 0 and at most 1.
  double Share(std::string_view name, std::optional<double> otherwise = {});
  int64_t Count(std::string_view name, int64_t least, int64_t most,
                std::optional<int64_t> otherwise = {});
  bool Flag(std::string_view name, bool otherwise);
  std::string Text(std::string_view name, std::optional<std::string> otherwise = {});
  // The position of the text among `choices`.
  size_t Choice(std::string_view name, std::span<const std::string_view> choices,
                std::optional<size_t> otherwise = {});
  JsonFields Object(std::string_view name);
  // The elements of a list, each of which must be an object; no element if the field is missing and may be.
  std::vector<JsonFields> Objects(std::string_view name, bool required = true);
  std::vector<std::string> Texts(std::string_view name);
  // A list of lists of numbers, each of `width` numbers that are not negative.
  std::vector<std::vector<double>> Rows(std::string_view name, size_t width);
  // The names of all fields, in alphabetical order.
  std::vector<std::string> Names() const;

  // Says which fields nobody asked for.
  void Finish();

  JsonMistakes& mistakes() { return *mistakes_; }
  const std::string& path() const { return path_; }

 private:
  const nlohmann::json* Find(std::string_view name, bool required);
  double Number(std::string_view name, std::optional<double> otherwise, double least,
                std::string_view expected, bool (*good)(double));

  const nlohmann::json* object_;
  std::string path_;
  JsonMistakes* mistakes_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace heddle
