#include "heddle/core/base/json_fields.h"

#include <algorithm>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// Larger than any figure, and small enough to compute with.
constexpr double kLargestFigure = 1e18;

}  // namespace

void JsonMistakes::AddText(JsonValue at, std::string_view message) {
  if (full()) return;
  list_.push_back(document_.DiagnosticAt(at.offset(), message));
  list_.back().kind = kind_;
}

std::vector<int64_t> ReadCounts(JsonValue list, JsonMistakes& mistakes) {
  std::vector<int64_t> counts;
  if (!list.is_array() && !mistakes.full())
    mistakes.Add(list, "`{}` is {}, expected a list", list.path(), Shown(list));
  for (JsonValue item : list.items()) {
    if (item.is_int() && item.integer() >= 0) {
      counts.push_back(item.integer());
      continue;
    }
    if (!mistakes.full())
      mistakes.Add(item, "`{}` is {}, expected a whole number of at least 0", item.path(),
                   Shown(item));
    return {};
  }
  return counts;
}

JsonFields::JsonFields(JsonValue object, JsonMistakes& mistakes, Nulls nulls)
    : mistakes_(&mistakes), nulls_(nulls) {
  if (!object.is_object()) {
    if (mistakes_->full()) return;
    std::string path = object.path();
    mistakes_->Add(object, "{} is {}, expected an object",
                   path.empty() ? "the file" : fmt::format("`{}`", path), Shown(object));
    return;
  }
  object_ = object;
  for (auto field : object.fields()) fields_.push_back(field);
  std::ranges::sort(fields_, {}, [](const auto& field) { return field.first; });
}

std::optional<JsonValue> JsonFields::Find(std::string_view name) {
  asked_.emplace(name);
  auto at =
      std::ranges::lower_bound(fields_, name, {}, [](const auto& field) { return field.first; });
  if (at == fields_.end() || at->first != name) return std::nullopt;
  if (nulls_ == Nulls::kMissing && at->second.is_null()) return std::nullopt;
  return at->second;
}

std::optional<JsonValue> JsonFields::Require(std::string_view name, bool required) {
  std::optional<JsonValue> value = Find(name);
  if (!value && required && object_) Wrong(name, "is missing");
  return value;
}

void JsonFields::AddWrong(std::string_view name, std::string_view message) {
  if (!object_ || mistakes_->full()) return;
  std::string path = object_->path();
  mistakes_->Add(Find(name).value_or(*object_), "`{}{}{}` {}", path, path.empty() ? "" : ".", name,
                 message);
}

double JsonFields::Number(std::string_view name, std::optional<double> otherwise, double least,
                          std::string_view expected, bool (*good)(double)) {
  std::optional<JsonValue> value = Require(name, !otherwise);
  if (!value) return otherwise.value_or(least);
  if (value->is_number()) {
    double number = value->number();
    if (number <= kLargestFigure && good(number)) return number;
  }
  Wrong(name, "is {}, expected {}", Shown(*value), expected);
  return otherwise.value_or(least);
}

double JsonFields::Positive(std::string_view name, std::optional<double> otherwise) {
  return Number(name, otherwise, 1, "a number above 0", [](double x) { return x > 0; });
}

double JsonFields::NotNegative(std::string_view name, std::optional<double> otherwise) {
  return Number(name, otherwise, 0, "a number of at least 0", [](double x) { return x >= 0; });
}

double JsonFields::Share(std::string_view name, std::optional<double> otherwise) {
  return Number(name, otherwise, 1, "a number above 0 and at most 1",
                [](double x) { return x > 0 && x <= 1; });
}

int64_t JsonFields::Count(std::string_view name, int64_t least, int64_t most,
                          std::optional<int64_t> otherwise) {
  std::optional<JsonValue> value = Require(name, !otherwise);
  if (!value) return otherwise.value_or(least);
  if (value->is_int() && value->integer() >= least && value->integer() <= most)
    return value->integer();
  Wrong(name, "is {}, expected a whole number from {} {}", Shown(*value), least,
        most == INT64_MAX ? "on" : fmt::format("to {}", most));
  return otherwise.value_or(least);
}

bool JsonFields::Flag(std::string_view name, bool otherwise) {
  std::optional<JsonValue> value = Find(name);
  if (!value) return otherwise;
  if (value->is_bool()) return value->boolean();
  Wrong(name, "is {}, expected true or false", Shown(*value));
  return otherwise;
}

std::string JsonFields::Text(std::string_view name, std::optional<std::string> otherwise) {
  std::optional<JsonValue> value = Require(name, !otherwise);
  if (value && value->is_string()) return std::string(value->string());
  if (value) Wrong(name, "is {}, expected a text", Shown(*value));
  return otherwise.value_or("");
}

size_t JsonFields::Choice(std::string_view name, std::span<const std::string_view> choices,
                          std::optional<size_t> otherwise) {
  std::optional<JsonValue> value = Require(name, !otherwise);
  if (!value) return otherwise.value_or(0);
  if (value->is_string()) {
    auto at = std::ranges::find(choices, value->string());
    if (at != choices.end()) return static_cast<size_t>(at - choices.begin());
  }
  std::string all;
  for (std::string_view choice : choices)
    all += fmt::format("{}`{}`", all.empty() ? "" : ", ", choice);
  Wrong(name, "is {}, expected one of {}", Shown(*value), all);
  return otherwise.value_or(0);
}

JsonFields JsonFields::Object(std::string_view name) {
  std::optional<JsonValue> value = Require(name, true);
  return value ? JsonFields(*value, *mistakes_, nulls_) : JsonFields(*mistakes_, nulls_);
}

std::vector<JsonFields> JsonFields::Objects(std::string_view name, bool required) {
  std::vector<JsonFields> list;
  std::optional<JsonValue> value = Require(name, required);
  if (!value) return list;
  if (!value->is_array()) Wrong(name, "is {}, expected a list", Shown(*value));
  for (JsonValue item : value->items()) list.emplace_back(item, *mistakes_, nulls_);
  return list;
}

std::vector<std::string> JsonFields::Texts(std::string_view name) {
  std::vector<std::string> texts;
  std::optional<JsonValue> value = Require(name, true);
  if (!value) return texts;
  bool good = value->is_array();
  for (JsonValue item : value->items()) {
    good = good && item.is_string();
    if (good) texts.emplace_back(item.string());
  }
  if (good) return texts;
  Wrong(name, "is not a list of texts");
  return {};
}

std::vector<std::vector<double>> JsonFields::Rows(std::string_view name, size_t width) {
  std::vector<std::vector<double>> rows;
  std::optional<JsonValue> value = Require(name, true);
  if (!value) return rows;
  if (!value->is_array()) Wrong(name, "is {}, expected a list", Shown(*value));
  for (JsonValue row : value->items()) {
    std::vector<double> numbers;
    for (JsonValue item : row.items()) {
      double number = item.is_number() ? item.number() : -1;
      if (!(number >= 0) || number > kLargestFigure) {
        mistakes_->Add(item, "`{}` is {}, expected a number of at least 0", item.path(),
                       Shown(item));
        return rows;
      }
      numbers.push_back(number);
    }
    if (numbers.size() != width) {
      mistakes_->Add(row, "`{}` is not a list of {} numbers", row.path(), width);
      return rows;
    }
    rows.push_back(std::move(numbers));
  }
  return rows;
}

std::vector<int64_t> JsonFields::Counts(std::string_view name) {
  std::optional<JsonValue> value = Require(name, true);
  return value ? ReadCounts(*value, *mistakes_) : std::vector<int64_t>();
}

void JsonFields::Finish() {
  std::vector<std::string_view> known(asked_.begin(), asked_.end());
  for (const auto& [name, value] : fields_) {
    if (asked_.contains(name) || mistakes_->full()) continue;
    mistakes_->Add(value, "`{}` is not a field here{}", value.path(), NearestHint(name, known));
  }
}

}  // namespace heddle
