#include "heddle/cli/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/base/text.h"

namespace heddle {
namespace {

bool IsPositional(const std::string& name) { return !name.starts_with('-'); }

// The name of a flag ends at the `=`; that of a short one, after its letter.
std::string NameOf(const std::string& arg) {
  return arg.substr(0, arg.starts_with("--") ? arg.find('=') : 2);
}

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

JobValue NumberValue(double number) {
  JobValue value{JobValueKind::kNumber, {""}};
  AppendFloat(value.texts[0], number);
  return value;
}

}  // namespace

Flags::Flag& Flags::Add(std::string_view names, std::string_view value, std::string help,
                        Setter set, Getter get) {
  Flag flag;
  for (std::string_view name : Split(names, ',')) flag.names.emplace_back(name);
  flag.value = value;
  flag.help = std::move(help);
  flag.set = std::move(set);
  flag.get = std::move(get);
  flags_.push_back(std::move(flag));
  return flags_.back();
}

void Flags::Positional(const std::string& name, std::string& target, std::string help,
                       std::vector<std::string> choices) {
  auto set = [&target, choices = std::move(choices)](std::string_view name,
                                                     const std::string& value) -> Status {
    std::vector<std::string_view> views(choices.begin(), choices.end());
    if (!choices.empty() && std::ranges::find(choices, value) == choices.end())
      return Error(Diag::kBadChoice, "{} is `{}`{}; it is one of {}", name, value,
                   NearestHint(value, views), Join(views, ", "));
    target = value;
    return Done{};
  };
  Add(name, name, std::move(help), std::move(set), {}).required = true;
}

void Flags::Switch(std::string_view names, bool& target, std::string help) {
  auto set = [&target](std::string_view name, const std::string& value) -> Status {
    if (value != "true" && value != "false")
      return Error(Diag::kUsage, "{} is `{}`; it is a switch: true or false", name, value);
    target = value == "true";
    return Done{};
  };
  Add(names, "", std::move(help), std::move(set), [&target] {
    return JobValue{JobValueKind::kBool, {target ? "true" : "false"}};
  });
}

void Flags::Option(std::string_view names, std::string& target, std::string help, bool required) {
  if (!target.empty()) help += fmt::format(" (default: {})", target);
  auto set = [&target](std::string_view, const std::string& value) -> Status {
    target = value;
    return Done{};
  };
  Add(names, "TEXT", std::move(help), std::move(set), [&target] {
    return JobValue{JobValueKind::kText, {target}};
  }).required = required;
}

void Flags::Option(std::string_view names, int64_t& target, std::string help,
                   const NumberRange& range) {
  // Out of range: no default to show.
  if (target >= range.least && target <= range.most) help += fmt::format(" (default: {})", target);
  Add(
      names, "INT", std::move(help),
      [&target, range](std::string_view name, const std::string& value) -> Status {
        HEDDLE_TRY(target, ReadNumber(name, value, range));
        return Done{};
      },
      [&target, range]() -> std::optional<JobValue> {
        if (target < range.least || target > range.most) return std::nullopt;
        return JobValue{JobValueKind::kInt, {std::to_string(target)}};
      });
}

void Flags::Option(std::string_view names, double& target, std::string help) {
  help += fmt::format(" (default: {})", target);
  Add(
      names, "NUMBER", std::move(help),
      [&target](std::string_view name, const std::string& value) -> Status {
        HEDDLE_TRY(target, ReadDecimal(name, value));
        return Done{};
      },
      [&target] { return NumberValue(target); });
}

void Flags::Option(std::string_view names, std::optional<int64_t>& target, std::string help) {
  Add(
      names, "INT", std::move(help),
      [&target](std::string_view name, const std::string& value) -> Status {
        HEDDLE_TRY(target, ReadNumber(name, value, {}));
        return Done{};
      },
      [&target]() -> std::optional<JobValue> {
        if (!target) return std::nullopt;
        return JobValue{JobValueKind::kInt, {std::to_string(*target)}};
      });
}

void Flags::Option(std::string_view names, std::optional<double>& target, std::string help) {
  Add(
      names, "NUMBER", std::move(help),
      [&target](std::string_view name, const std::string& value) -> Status {
        HEDDLE_TRY(target, ReadDecimal(name, value));
        return Done{};
      },
      [&target]() -> std::optional<JobValue> {
        if (!target) return std::nullopt;
        return NumberValue(*target);
      });
}

void Flags::Option(std::string_view names, std::vector<std::string>& target, std::string help) {
  auto set = [&target](std::string_view, const std::string& value) -> Status {
    target.push_back(value);
    return Done{};
  };
  Add(names, "TEXT", std::move(help), std::move(set), [&target] {
    return JobValue{JobValueKind::kTexts, target};
  }).repeats = true;
}

void Flags::AcceptOld(std::string_view old, std::string_view name) {
  Flag* flag = Find(name);
  HEDDLE_CHECK(flag != nullptr, name);
  flag->old_names.emplace_back(old);
}

Flags::Flag* Flags::Find(std::string_view name) {
  if (!name.starts_with('-')) return nullptr;
  auto has = [&](const std::vector<std::string>& names) {
    return std::ranges::find(names, name) != names.end();
  };
  auto at =
      std::ranges::find_if(flags_, [&](const Flag& f) { return has(f.names) || has(f.old_names); });
  return at == flags_.end() ? nullptr : &*at;
}

Flags::Flag* Flags::NextPositional() {
  auto at = std::ranges::find_if(
      flags_, [](const Flag& f) { return IsPositional(f.names[0]) && !f.given; });
  return at == flags_.end() ? nullptr : &*at;
}

Status Flags::ReadFlag(std::span<const std::string> args, size_t& at) {
  const std::string& arg = args[at];
  bool is_long = arg.starts_with("--");
  std::string name = NameOf(arg);
  bool attached = arg.size() > name.size();
  Flag* flag = Find(name);
  if (flag == nullptr) {
    std::vector<std::string_view> known;
    if (is_long) {
      known = {"--help"};
      for (const Flag& f : flags_) known.insert(known.end(), f.names.begin(), f.names.end());
    }
    return Error(Diag::kUnknownFlag, "unknown argument `{}`{}", name, NearestHint(name, known));
  }
  std::string value = attached ? arg.substr(name.size() + (is_long ? 1 : 0)) : "true";
  if (!flag->value.empty() && !attached) {
    // A flag is nobody's value: whoever means it writes `--name=--value`.
    if (at + 1 == args.size() || args[at + 1] == "--" || Find(NameOf(args[at + 1])) != nullptr)
      return Error(Diag::kUsage, "{} has no value; it takes {}: {}", name, flag->value, flag->help);
    value = args[++at];
  }
  if (flag->given && !flag->repeats) return Error(Diag::kUsage, "{} is given twice", name);
  flag->given = true;
  flag->origin = "flag";
  if (std::ranges::find(flag->old_names, name) != flag->old_names.end())
    hints_.push_back(fmt::format("{} is called {} now; both are accepted", name, flag->names[0]));
  return flag->set(name, value);
}

Status Flags::ReadPositional(std::string_view command, const std::string& value) {
  Flag* flag = NextPositional();
  if (flag == nullptr)
    return Error(Diag::kUsage, "`{}` is one argument too many; usage: heddle {}{}", value, command,
                 Usage());
  flag->given = true;
  flag->origin = "argument";
  return flag->set(flag->names[0], value);
}

Status Flags::Read(std::string_view command, std::span<const std::string> args) {
  Diagnostics mistakes;
  auto note = [&](const Diagnostics& more) {
    mistakes.insert(mistakes.end(), more.begin(), more.end());
  };
  bool flags_end = false;
  for (size_t at = 0; at < args.size(); ++at) {
    if (!flags_end && args[at] == "--") {
      flags_end = true;
    } else if (!flags_end && args[at].size() > 1 && args[at].starts_with('-')) {
      note(ReadFlag(args, at).diagnostics());
    } else {
      note(ReadPositional(command, args[at]).diagnostics());
    }
  }
  if (config_ && !config_->file.empty()) note(ReadConfig().diagnostics());
  // What is missing may be what was misspelled.
  for (const Flag& flag : flags_) {
    if (flag.required && flag.origin == "default" && mistakes.empty())
      note({MakeDiagnostic(Diag::kUsage, "`heddle {}` needs {}: {}", command, flag.names[0],
                           flag.help)});
  }
  if (!mistakes.empty()) return Failure{std::move(mistakes)};
  if (config_) config_->job = Job();
  return Done{};
}

std::string Flags::Usage() const {
  std::string out;
  for (const Flag& flag : flags_) {
    if (!flag.required) continue;
    out += " " + flag.names[0];
    if (!IsPositional(flag.names[0])) out += " " + flag.value;
  }
  bool optional = std::ranges::any_of(flags_, [](const Flag& f) { return !f.required; });
  return out + (optional ? " [FLAGS]" : "");
}

std::vector<std::pair<std::string, std::string>> Flags::Meanings() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Flag& flag : flags_) {
    std::vector<std::string_view> names(flag.names.begin(), flag.names.end());
    bool has_value = !flag.value.empty() && !IsPositional(flag.names[0]);
    out.emplace_back(Join(names, ", ") + (has_value ? " " + flag.value : ""), flag.help);
  }
  return out;
}

}  // namespace heddle
