#include "heddle/cost/cluster/json_fields.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "heddle/base/text.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr size_t kDeepest = 32;
// Larger than any figure, small enough for arithmetic.
constexpr double kLargest = 1e18;

// Where brackets nest too deep, or nothing.
std::optional<size_t> FindTooDeep(std::string_view text) {
  size_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if ((c == '[' || c == '{') && ++depth > kDeepest) {
      return i;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return std::nullopt;
}

// A value for a message.
std::string Shown(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 37) + "..." : text;
}

const json& EmptyObject() {
  static const json kEmpty = json::object();
  return kEmpty;
}

}  // namespace

Result<json> ParseJson(std::string_view text, const std::string& file) {
  SourceText source(file, text);
  if (std::optional<size_t> at = FindTooDeep(text)) {
    return Failure{
        {source.At(MakeDiagnostic(Diag::kJson, "nests deeper than {} levels", kDeepest), *at)}};
  }
  std::string twice;
  std::vector<std::set<std::string>> names;
  auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(parsed).second && twice.empty())
      twice = parsed;
    return true;
  };
  json value;
  try {
    value = json::parse(text, watch);
  } catch (const json::parse_error& error) {
    size_t at = error.byte > 0 ? error.byte - 1 : 0;
    return Failure{{source.At(MakeDiagnostic(Diag::kJson, "this is not JSON"), at)}};
  } catch (const json::exception&) {
    Failure failure = Error(Diag::kJson, "a number exceeds what a double holds");
    failure.diagnostics[0].file = file;
    return failure;
  }
  if (twice.empty()) return value;
  Failure failure = Error(Diag::kJson, "`{}` stands twice in one object", twice);
  failure.diagnostics[0].file = file;
  return failure;
}

JsonFields::JsonFields(const json& object, std::string path, JsonMistakes& mistakes)
    : object_(&object), path_(std::move(path)), mistakes_(&mistakes) {
  if (object.is_object()) return;
  std::string what = path_.empty() ? "the file" : "`" + path_.substr(0, path_.size() - 1) + "`";
  mistakes_->Add("{} is {}, expected an object", what, Shown(object));
  object_ = &EmptyObject();
}

bool JsonFields::Has(std::string_view name) {
  asked_.emplace(name);
  return object_->contains(name);
}

const json* JsonFields::Find(std::string_view name, bool required) {
  asked_.emplace(name);
  auto at = object_->find(name);
  if (at != object_->end()) return &*at;
  if (required && object_ != &EmptyObject()) mistakes_->Add("`{}{}` is missing", path_, name);
  return nullptr;
}

double JsonFields::Number(std::string_view name, std::optional<double> otherwise, double least,
                          std::string_view expected, bool (*good)(double)) {
  const json* value = Find(name, !otherwise);
  if (value == nullptr) return otherwise.value_or(least);
  if (value->is_number()) {
    auto number = value->get<double>();
    if (std::isfinite(number) && number <= kLargest && good(number)) return number;
  }
  mistakes_->Add("`{}{}` is {}, expected {}", path_, name, Shown(*value), expected);
  return otherwise.value_or(least);
}

double JsonFields::Positive(std::string_view name, std::optional<double> otherwise) {
  return Number(name, otherwise, 1, "a number above 0", [](double x) { return x > 0; });
}

double JsonFields::NotNegative(std::string_view name, std::optional<double> otherwise) {
  return Number(name, otherwise, 0, "a number from 0 on", [](double x) { return x >= 0; });
}

double JsonFields::Share(std::string_view name, std::optional<double> otherwise) {
  return Number(name, otherwise, 1, "a number above 0 and at most 1",
                [](double x) { return x > 0 && x <= 1; });
}

int64_t JsonFields::Count(std::string_view name, int64_t least, int64_t most,
                          std::optional<int64_t> otherwise) {
  const json* value = Find(name, !otherwise);
  if (value == nullptr) return otherwise.value_or(least);
  // A number above 2^63 is unsigned, and would come back negative.
  bool fits = value->is_number_integer() &&
              (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX);
  if (fits && value->get<int64_t>() >= least && value->get<int64_t>() <= most)
    return value->get<int64_t>();
  mistakes_->Add("`{}{}` is {}, expected a whole number from {} to {}", path_, name, Shown(*value),
                 least, most);
  return otherwise.value_or(least);
}

bool JsonFields::Flag(std::string_view name, bool otherwise) {
  const json* value = Find(name, false);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  mistakes_->Add("`{}{}` is {}, expected true or false", path_, name, Shown(*value));
  return otherwise;
}

std::string JsonFields::Text(std::string_view name, std::optional<std::string> otherwise) {
  const json* value = Find(name, !otherwise);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  if (value != nullptr) mistakes_->Add("`{}{}` is {}, expected a text", path_, name, Shown(*value));
  return otherwise.value_or("");
}

size_t JsonFields::Choice(std::string_view name, std::span<const std::string_view> choices,
                          std::optional<size_t> otherwise) {
  const json* value = Find(name, !otherwise);
  if (value == nullptr) return otherwise.value_or(0);
  if (value->is_string()) {
    auto at = std::ranges::find(choices, value->get_ref<const std::string&>());
    if (at != choices.end()) return static_cast<size_t>(at - choices.begin());
  }
  std::string all;
  for (std::string_view choice : choices)
    all += fmt::format("{}`{}`", all.empty() ? "" : ", ", choice);
  mistakes_->Add("`{}{}` is {}, expected one of {}", path_, name, Shown(*value), all);
  return otherwise.value_or(0);
}

JsonFields JsonFields::Object(std::string_view name) {
  const json* value = Find(name, true);
  return {value != nullptr ? *value : EmptyObject(), fmt::format("{}{}.", path_, name), *mistakes_};
}

std::vector<JsonFields> JsonFields::Objects(std::string_view name, bool required) {
  std::vector<JsonFields> list;
  const json* value = Find(name, required);
  if (value == nullptr) return list;
  if (!value->is_array()) {
    mistakes_->Add("`{}{}` is {}, expected a list", path_, name, Shown(*value));
    return list;
  }
  for (size_t i = 0; i < value->size(); ++i)
    list.emplace_back((*value)[i], fmt::format("{}{}[{}].", path_, name, i), *mistakes_);
  return list;
}

std::vector<std::string> JsonFields::Texts(std::string_view name) {
  std::vector<std::string> texts;
  const json* value = Find(name, true);
  if (value == nullptr) return texts;
  bool good = value->is_array() &&
              std::ranges::all_of(*value, [](const json& one) { return one.is_string(); });
  if (!good) {
    mistakes_->Add("`{}{}` is not a list of texts", path_, name);
    return texts;
  }
  for (const json& one : *value) texts.push_back(one);
  return texts;
}

std::vector<std::vector<double>> JsonFields::Rows(std::string_view name, size_t width) {
  std::vector<std::vector<double>> rows;
  const json* value = Find(name, true);
  if (value == nullptr) return rows;
  if (!value->is_array()) {
    mistakes_->Add("`{}{}` is {}, expected a list", path_, name, Shown(*value));
    return rows;
  }
  for (size_t i = 0; i < value->size(); ++i) {
    const json& row = (*value)[i];
    if (!row.is_array() || row.size() != width) {
      mistakes_->Add("`{}{}[{}]` is not a list of {} numbers", path_, name, i, width);
      return rows;
    }
    std::vector<double> numbers;
    for (size_t j = 0; j < width; ++j) {
      double number = row[j].is_number() ? row[j].get<double>() : -1;
      if (!(number >= 0) || number > kLargest) {
        mistakes_->Add("`{}{}[{}][{}]` is {}, expected a number from 0 on", path_, name, i, j,
                       Shown(row[j]));
        return rows;
      }
      numbers.push_back(number);
    }
    rows.push_back(std::move(numbers));
  }
  return rows;
}

std::vector<std::string> JsonFields::Names() const {
  std::vector<std::string> names;
  for (const auto& item : object_->items()) names.push_back(item.key());
  return names;
}

void JsonFields::Finish() {
  std::vector<std::string_view> known(asked_.begin(), asked_.end());
  for (const auto& item : object_->items()) {
    if (asked_.contains(item.key())) continue;
    mistakes_->Add("`{}{}` is not a field here{}", path_, item.key(),
                   NearestHint(item.key(), known));
  }
}

}  // namespace heddle
