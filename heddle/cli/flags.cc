#include "heddle/cli/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/core/base/text.h"
#include "heddle/cli/foreign_keys.h"

namespace heddle {
namespace {

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

// The flags of `names` that end in `name` without its dashes: `--training.steps` for `--steps`.
std::string SuffixHint(std::string_view name, std::span<const std::string_view> names) {
  auto plain = [](std::string_view text) {
    std::string out(text);
    std::ranges::replace(out, '-', '_');
    return out;
  };
  std::string suffix = "." + plain(name.substr(std::min<size_t>(name.size(), 2)));
  std::string out;
  for (std::string_view known : names) {
    if (plain(known).ends_with(suffix))
      out += fmt::format("{} `{}`", out.empty() ? "; write" : " or", known);
  }
  return out;
}

}  // namespace

std::string FlagInfo::Title() const {
  std::vector<std::string_view> views(names.begin(), names.end());
  return Join(views, ", ") + (value.empty() || positional() ? "" : " " + value);
}

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
  flags_.push_back(std::move(flag));
  return flags_.back();
}

void Flags::Positional(const std::string& name, std::string& target, std::string help,
                       std::vector<std::string> choices) {
  auto set = [&target, choices](std::string_view name, const std::string& value) -> Status {
    std::vector<std::string_view> views(choices.begin(), choices.end());
    if (!choices.empty() && std::ranges::find(choices, value) == choices.end())
      return Error(Diag::kBadChoice, "{} is `{}`{}; it is one of {}", name, value,
                   NearestHint(value, views), Join(views, ", "));
    target = value;
    return Done{};
  };
  Flag& flag = Add(name, JobValueKind::kText, std::move(help), std::move(set), {});
  flag.required = true;
  flag.choices = std::move(choices);
}

void Flags::Switch(std::string_view names, bool& target, std::string help) {
  if (target) help += " (default: true)";
  auto set = [&target](std::string_view name, const std::string& value) -> Status {
    if (value != "true" && value != "false")
      return Error(Diag::kUsage, "{} is `{}`; it is a switch: true or false", name, value);
    target = value == "true";
    return Done{};
  };
  Add(names, JobValueKind::kBool, std::move(help), std::move(set), [&target] {
    return JobValue{JobValueKind::kBool, {target ? "true" : "false"}};
  });
}

void Flags::Option(std::string_view names, std::string& target, std::string help, bool required) {
  if (!target.empty()) help += fmt::format(" (default: {})", target);
  auto set = [&target](std::string_view, const std::string& value) -> Status {
    target = value;
    return Done{};
  };
  Add(names, JobValueKind::kText, std::move(help), std::move(set), [&target] {
    return JobValue{JobValueKind::kText, {target}};
  }).required = required;
}

void Flags::Option(std::string_view names, int64_t& target, std::string help,
                   const NumberRange& range) {
  // Out of range: no default to show.
  if (target >= range.least && target <= range.most) help += fmt::format(" (default: {})", target);
  Add(
      names, JobValueKind::kInt, std::move(help),
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
      names, JobValueKind::kNumber, std::move(help),
      [&target](std::string_view name, const std::string& value) -> Status {
        HEDDLE_TRY(target, ReadDecimal(name, value));
        return Done{};
      },
      [&target] { return NumberValue(target); });
}

void Flags::Option(std::string_view names, std::optional<int64_t>& target, std::string help) {
  Add(
      names, JobValueKind::kInt, std::move(help),
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
      names, JobValueKind::kNumber, std::move(help),
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
  Add(names, JobValueKind::kTexts, std::move(help), std::move(set), [&target] {
    return JobValue{JobValueKind::kTexts, target};
  }).repeats = true;
}

void Flags::Path(std::string_view name, bool (*is_path)(std::string_view value)) {
  Flag* flag = Find(name);
  HEDDLE_CHECK(flag != nullptr, "a path is the value of no flag");
  flag->is_path = true;
  flag->names_path = is_path;
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
  auto at = std::ranges::find_if(flags_, [](const Flag& f) { return f.positional() && !f.given; });
  return at == flags_.end() ? nullptr : &*at;
}

Failure Flags::UnknownFlag(const std::string& name) const {
  std::vector<std::string_view> known;
  if (name.starts_with("--")) {
    known = {"--help"};
    for (const Flag& f : flags_) known.insert(known.end(), f.names.begin(), f.names.end());
  }
  std::string hint = SuffixHint(name, known);
  return Error(Diag::kUnknownFlag, "unknown argument `{}`{}", name,
               hint.empty() ? NearestHint(name, known) : hint);
}

Status Flags::SetFlag(Flag& flag, std::string_view name, const std::string& value) {
  if (flag.given && !flag.repeats) return Error(Diag::kUsage, "{} is given twice", name);
  flag.given = true;
  flag.origin = "flag";
  return flag.set(name, value);
}

Status Flags::ReadFlag(std::span<const std::string> args, size_t& at) {
  const std::string& arg = args[at];
  bool is_long = arg.starts_with("--");
  std::string name = NameOf(arg);
  bool attached = arg.size() > name.size();
  if (name == "--") return Error(Diag::kUsage, "`{}` has no name of a flag before its `=`", arg);
  const ForeignKey* foreign = is_long ? FindForeignKey(name.substr(2)) : nullptr;
  Flag* flag = Find(name);
  if (flag == nullptr && foreign != nullptr && foreign->is_alias())
    flag = Find(fmt::format("--{}", foreign->text));
  if (flag == nullptr) {
    bool answers = foreign != nullptr && !foreign->is_alias() && (foreign->refused() || config_);
    if (answers) return ReadForeign(*foreign, args, at);
    return UnknownFlag(name);
  }
  std::string value = attached ? arg.substr(name.size() + (is_long ? 1 : 0)) : "true";
  if (!flag->value.empty() && !attached) {
    // A flag is not a value; `--name=--value` gives one that looks like a flag.
    if (at + 1 == args.size() || args[at + 1] == "--" || Find(NameOf(args[at + 1])) != nullptr)
      return Error(Diag::kUsage, "{} has no value; it takes {}: {}", name, flag->value, flag->help);
    value = args[++at];
  }
  if (std::ranges::find(flag->old_names, name) != flag->old_names.end())
    hints_.push_back(fmt::format("{} is called {} now; both are accepted", name, flag->names[0]));
  if (foreign != nullptr && foreign->IsOff(value)) return Done{};
  return SetFlag(*flag, name, foreign == nullptr ? value : foreign->Translate(value));
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
  if (config_ && IsSet("--config")) note(ReadConfig().diagnostics());
  if (mistakes.empty()) note(CheckRequirements().diagnostics());
  // A missing argument may be a misspelt one.
  for (const Flag& flag : flags_) {
    if (flag.required && flag.origin == "default" && mistakes.empty())
      note({MakeDiagnostic(Diag::kUsage, "`heddle {}` needs {}: {}", command, flag.names[0],
                           flag.help)});
  }
  if (!mistakes.empty()) return Failure{std::move(mistakes)};
  for (const std::function<void()>& action : finally_) action();
  for (const Flag& flag : flags_) {
    if (flag.origin != "default") given_->names_.insert(flag.names.begin(), flag.names.end());
  }
  if (config_) config_->job = Job();
  if (values_ != nullptr) *values_ = ValueLines();
  return Done{};
}

void Flags::Requires(std::string flag, std::string needs) {
  requirements_.push_back({std::move(flag), std::move(needs)});
}

void Flags::Excludes(std::string flag, std::string section, std::string reason) {
  exclusions_.push_back({std::move(flag), std::move(section), std::move(reason)});
}

bool Flags::IsSet(std::string_view names) const {
  return std::ranges::any_of(Split(names, ','), [&](std::string_view name) {
    return std::ranges::any_of(flags_, [&](const Flag& f) {
      return std::ranges::find(f.names, name) != f.names.end() && f.origin != "default";
    });
  });
}

Status Flags::CheckRequirements() const {
  for (const auto& [name, needs] : requirements_) {
    bool given = std::ranges::any_of(flags_, [&](const Flag& f) {
      return f.given && std::ranges::find(f.names, name) != f.names.end();
    });
    if (!given || IsSet(needs)) continue;
    std::vector<std::string_view> all = Split(needs, ',');
    return Error(Diag::kUsage, "{} has no effect without {}", name, Join(all, " or "));
  }
  for (const auto& [name, section, reason] : exclusions_) {
    if (!IsSet(name)) continue;
    for (const Flag& flag : flags_) {
      if (flag.given && flag.section == section)
        return Error(Diag::kUsage, "{} has no effect with {}: {}", flag.names[0], name, reason);
    }
  }
  return Done{};
}

std::string Flags::Usage() const {
  std::string out;
  for (const Flag& flag : flags_) {
    if (!flag.required) continue;
    out += " " + flag.names[0];
    if (!flag.positional()) out += " " + flag.value;
  }
  bool optional = std::ranges::any_of(flags_, [](const Flag& f) { return !f.required; });
  return out + (optional ? " [FLAGS]" : "");
}

std::vector<FlagInfo> Flags::Infos() const {
  std::vector<std::string_view> sections;
  for (const Flag& flag : flags_) {
    if (std::ranges::find(sections, flag.section) == sections.end())
      sections.push_back(flag.section);
  }
  std::vector<FlagInfo> out;
  for (std::string_view section : sections) {
    for (const Flag& flag : flags_) {
      if (flag.section == section) out.push_back(flag);
    }
  }
  return out;
}

}  // namespace heddle
