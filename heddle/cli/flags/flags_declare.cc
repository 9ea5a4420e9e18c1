// Declares flags: how each type of value is read, shown and written to a job file.
#include <charconv>
#include <cmath>

#include "heddle/cli/flags/flags.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

Result<int64_t> ReadNumber(std::string_view name, const std::string& value,
                           const NumberRange& range) {
  int64_t number = 0;
  const char* end = value.data() + value.size();
  auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc::result_out_of_range)
    return Error(Diag::kUsage, "{} is {}, which does not fit into 64 bits", name, value);
  if (error != std::errc() || stop != end)
    return Error(Diag::kUsage, "{} is `{}`, expected a whole number", name, value);
  if (number < range.least && range.most == INT64_MAX)
    return Error(Diag::kUsage, "{} is {}, expected {} or more", name, number, range.least);
  if (number < range.least || number > range.most)
    return Error(Diag::kUsage, "{} is {}, expected {} to {}", name, number, range.least,
                 range.most);
  return number;
}

Result<double> ReadDecimal(std::string_view name, const std::string& value) {
  double number = 0;
  const char* end = value.data() + value.size();
  auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc::result_out_of_range)
    return Error(Diag::kUsage, "{} is {}, which does not fit into 64 bits", name, value);
  if (error != std::errc() || stop != end || !std::isfinite(number) || number < 0)
    return Error(Diag::kUsage, "{} is `{}`, expected a number of 0 or more", name, value);
  return number;
}

// How flags read and write each type of value: its kind in a job file, the text there, and the
// default that the help shows (empty: none).
JobValueKind KindOf(const std::string&) { return JobValueKind::kText; }
JobValueKind KindOf(int64_t) { return JobValueKind::kInt; }
JobValueKind KindOf(double) { return JobValueKind::kNumber; }
JobValueKind KindOf(bool) { return JobValueKind::kBool; }

Status ReadValue(std::string_view, const std::string& text, const NumberRange&,
                 std::string& target) {
  target = text;
  return Done{};
}
Status ReadValue(std::string_view name, const std::string& text, const NumberRange& range,
                 int64_t& target) {
  HEDDLE_TRY(target, ReadNumber(name, text, range));
  return Done{};
}
Status ReadValue(std::string_view name, const std::string& text, const NumberRange&,
                 double& target) {
  HEDDLE_TRY(target, ReadDecimal(name, text));
  return Done{};
}
Status ReadValue(std::string_view name, const std::string& text, const NumberRange&, bool& target) {
  if (text != "true" && text != "false")
    return Error(Diag::kBadChoice, "{} is `{}`; it is one of true, false", name, text);
  target = text == "true";
  return Done{};
}
template <typename T>
Status ReadValue(std::string_view name, const std::string& text, const NumberRange& range,
                 std::optional<T>& target) {
  return ReadValue(name, text, range, target.emplace());
}

std::string TextOf(const std::string& value) { return value; }
std::string TextOf(int64_t value) { return std::to_string(value); }
std::string TextOf(bool value) { return value ? "true" : "false"; }
std::string TextOf(double value) {
  std::string text;
  AppendFloat(text, value);
  return text;
}

template <typename T>
const T* Given(const T& target) {
  return &target;
}
template <typename T>
const T* Given(const std::optional<T>& target) {
  return target ? &*target : nullptr;
}
// A number out of its range means that the flag is not set.
const int64_t* InRange(const int64_t* value, const NumberRange& range) {
  return value != nullptr && *value >= range.least && *value <= range.most ? value : nullptr;
}
template <typename T>
const T* InRange(const T* value, const NumberRange&) {
  return value;
}

std::string_view Placeholder(JobValueKind kind) {
  switch (kind) {
    case JobValueKind::kBool: return "";
    case JobValueKind::kInt: return "INT";
    case JobValueKind::kNumber: return "NUMBER";
    case JobValueKind::kText:
    case JobValueKind::kTexts: return "TEXT";
  }
  return "";
}

}  // namespace

Flags::Flag& Flags::Add(std::string_view names, JobValueKind kind, std::string help, Setter set,
                        Getter get) {
  Flag flag;
  size_t equals = names.find('=');
  for (std::string_view name : Split(names.substr(0, equals), ',')) flag.names.emplace_back(name);
  flag.section = flag.positional() ? "Arguments" : section_;
  flag.kind = kind;
  flag.value = equals == std::string_view::npos ? Placeholder(kind) : names.substr(equals + 1);
  flag.help = std::move(help);
  flag.set = std::move(set);
  flag.get = std::move(get);
  if (flag.value == "FILE" || flag.value == "FOLDER") flag.absolute = AbsolutePath;
  flags_.push_back(std::move(flag));
  return flags_.back();
}

template <typename Target>
Flags::Flag& Flags::AddValue(std::string_view names, Target& target, std::string help,
                             const NumberRange& range) {
  using T = std::remove_cvref_t<decltype(*Given(target))>;
  const T* usual = InRange(Given(target), range);
  bool shown = usual != nullptr && *usual != T();
  if (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) shown = usual != nullptr;
  if (shown) help += fmt::format(" (default: {})", *usual);
  return Add(
      names, KindOf(T()), std::move(help),
      [&target, range](std::string_view name, const std::string& text) {
        return ReadValue(name, text, range, target);
      },
      [&target, range]() -> std::optional<JobValue> {
        const T* value = InRange(Given(target), range);
        if (value == nullptr) return std::nullopt;
        return JobValue{KindOf(*value), {TextOf(*value)}};
      });
}

template Flags::Flag& Flags::AddValue(std::string_view, std::string&, std::string,
                                      const NumberRange&);
template Flags::Flag& Flags::AddValue(std::string_view, int64_t&, std::string, const NumberRange&);
template Flags::Flag& Flags::AddValue(std::string_view, double&, std::string, const NumberRange&);
template Flags::Flag& Flags::AddValue(std::string_view, bool&, std::string, const NumberRange&);
template Flags::Flag& Flags::AddValue(std::string_view, std::optional<int64_t>&, std::string,
                                      const NumberRange&);
template Flags::Flag& Flags::AddValue(std::string_view, std::optional<double>&, std::string,
                                      const NumberRange&);
template Flags::Flag& Flags::AddValue(std::string_view, std::optional<bool>&, std::string,
                                      const NumberRange&);

void Flags::AddChoice(std::string_view names, std::string help, std::vector<std::string> texts,
                      std::function<void(size_t)> set, std::function<size_t()> get) {
  if (get() < texts.size()) help += fmt::format(" (default: {})", texts[get()]);
  Flag& flag = Add(
      names, JobValueKind::kText, std::move(help),
      [texts, set = std::move(set)](std::string_view name, const std::string& value) -> Status {
        auto at = std::ranges::find(texts, value);
        std::vector<std::string_view> views(texts.begin(), texts.end());
        if (at == texts.end())
          return Error(Diag::kBadChoice, "{} is `{}`{}; it is one of {}", name, value,
                       NearestHint(value, views), Join(views, ", "));
        set(static_cast<size_t>(at - texts.begin()));
        return Done{};
      },
      [texts, get]() -> std::optional<JobValue> {
        if (get() == texts.size()) return std::nullopt;
        return JobValue{JobValueKind::kText, {texts[get()]}};
      });
  flag.choices = std::move(texts);
}

void Flags::Choice(std::string_view names, std::string& target, std::string help,
                   const std::vector<std::string>& values) {
  AddChoice(
      names, std::move(help), values, [&target, values](size_t i) { target = values[i]; },
      [&target, values] {
        return static_cast<size_t>(std::ranges::find(values, target) - values.begin());
      });
}

void Flags::Positional(const std::string& name, std::string& target, std::string help,
                       std::vector<std::string> choices, bool required) {
  if (choices.empty()) {
    AddValue(name, target, std::move(help));
  } else {
    Choice(name, target, std::move(help), choices);
  }
  flags_.back().required = required;
}

void Flags::Option(std::string_view names, std::vector<std::string>& target, std::string help) {
  auto set = [&target](std::string_view, const std::string& value) -> Status {
    target.push_back(value);
    return Done{};
  };
  Add(names, JobValueKind::kTexts, std::move(help), std::move(set), [&target] {
    return JobValue{JobValueKind::kTexts, target};
  }).repeats = true;
}

void Flags::Path(std::string_view name, std::string (*absolute)(const std::string& value)) {
  Flag* flag = Find(name);
  HEDDLE_CHECK(flag != nullptr, "a path is given, but no flag takes it");
  flag->absolute = absolute;
}

void Flags::Requires(std::string flag, std::string needs) {
  requirements_.push_back({std::move(flag), std::move(needs), {}, {}});
}

void Flags::RequiresValue(std::string flag, std::string other, std::vector<std::string> values) {
  std::optional<JobValue> usual = Find(flag)->get();
  requirements_.push_back({std::move(flag), std::move(other), std::move(values), std::move(usual)});
}

void Flags::Excludes(std::string flag, std::string section, std::string reason) {
  exclusions_.push_back({std::move(flag), std::move(section), std::move(reason)});
}

}  // namespace heddle
