#include "heddle/cli/flags/flags.h"

#include <algorithm>

#include "heddle/cli/flags/foreign_keys.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// The name of a flag ends at the `=`; the name of a short flag, after its letter.
std::string NameOf(const std::string& arg) {
  return arg.substr(0, arg.starts_with("--") ? arg.find('=') : 2);
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

const Flags::Flag* Flags::Find(std::string_view name) const {
  if (!name.starts_with('-')) return nullptr;
  auto at = std::ranges::find_if(
      flags_, [&](const Flag& f) { return std::ranges::find(f.names, name) != f.names.end(); });
  return at == flags_.end() ? nullptr : &*at;
}

Flags::Flag* Flags::NextPositional() {
  auto at = std::ranges::find_if(
      flags_, [](const Flag& f) { return f.positional() && (!f.given || f.repeats); });
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
  if (flag.given && !flag.repeats) {
    if (flag.given_as == name) return Error(Diag::kUsage, "{} is given twice", name);
    return Error(Diag::kUsage, "{} and {} set the same flag; remove one of them", flag.given_as,
                 name);
  }
  flag.given_as = name;
  flag.given = true;
  flag.origin = "flag";
  return flag.set(name, value);
}

Status Flags::ReadFlag(std::span<const std::string> args, size_t& at) {
  const std::string& arg = args[at];
  bool is_long = arg.starts_with("--");
  std::string name = NameOf(arg);
  bool attached = arg.size() > name.size();
  if (name == "--") return Error(Diag::kUsage, "`{}` has no flag name before its `=`", arg);
  const ForeignKey* foreign = is_long ? FindForeignKey(name.substr(2)) : nullptr;
  Flag* flag = Find(name);
  if (flag == nullptr && foreign != nullptr && foreign->is_alias()) {
    flag = Find(fmt::format("--{}", foreign->text));
    if (flag != nullptr && foreign->hints)
      hints_.push_back(fmt::format("{} is now named {}; both are accepted", name, flag->names[0]));
  }
  if (flag == nullptr) {
    bool answers = foreign != nullptr && !foreign->is_alias() && (foreign->refused() || config_);
    if (answers) return ReadForeign(*foreign, args, at);
    return UnknownFlag(name);
  }
  std::string value = attached ? arg.substr(name.size() + (is_long ? 1 : 0)) : "true";
  if (!flag->value.empty() && !attached) {
    // A flag is not a value. Use `--name=--value` for a value that looks like a flag.
    if (at + 1 == args.size() || args[at + 1] == "--" || Find(NameOf(args[at + 1])) != nullptr)
      return Error(Diag::kUsage, "{} has no value; it takes {}: {}", name, flag->value, flag->help);
    value = args[++at];
  }
  if (foreign != nullptr && foreign->IsOff(value)) return Done{};
  return SetFlag(*flag, name, foreign == nullptr ? value : foreign->Translate(value));
}

Status Flags::ReadPositional(std::string_view command, const std::string& value) {
  Flag* flag = NextPositional();
  if (flag == nullptr)
    return Error(
        Diag::kUsage, "`{}` is one argument too many{}; usage: heddle {}{}", value,
        value == "true" || value == "false" ? ": a switch is given as --name=" + value : "",
        command, Usage());
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
  // A missing argument may be misspelled.
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

bool Flags::IsSet(std::string_view names) const {
  return std::ranges::any_of(Split(names, ','), [&](std::string_view name) {
    return std::ranges::any_of(flags_, [&](const Flag& f) {
      return std::ranges::find(f.names, name) != f.names.end() && f.origin != "default";
    });
  });
}

Status Flags::CheckRequirements() const {
  for (const FlagRequirement& requirement : requirements_)
    HEDDLE_RETURN_IF_ERROR(CheckRequirement(requirement));
  for (const Flag& flag : flags_) {
    const FlagExclusion* exclusion = flag.given ? ExclusionOf(flag) : nullptr;
    if (exclusion != nullptr)
      return Error(Diag::kUsage, "{} has no effect with {}: {}", flag.names[0], exclusion->flag,
                   exclusion->reason);
  }
  return Done{};
}

Status Flags::CheckRequirement(const FlagRequirement& requirement) const {
  const auto& [name, needs, values, usual] = requirement;
  const Flag* flag = Find(name);
  if (flag == nullptr) return Done{};
  if (values.empty()) {
    if (!flag->given || IsSet(needs)) return Done{};
    std::vector<std::string_view> all = Split(needs, ',');
    return Error(Diag::kUsage, "{} has no effect without {}", name, Join(all, " or "));
  }
  const std::string value = Find(needs)->get()->texts[0];
  if (std::ranges::find(values, value) != values.end()) return Done{};
  std::optional<JobValue> own = flag->get();
  bool is_usual = own.has_value() == usual.has_value() && (!own || own->texts == usual->texts);
  if (!flag->given && is_usual) return Done{};
  std::vector<std::string_view> all(values.begin(), values.end());
  return Error(Diag::kUsage, "{} has no effect with {}={}; it is for {}", name, needs, value,
               Join(all, " and "));
}

const FlagExclusion* Flags::ExclusionOf(const Flag& flag) const {
  auto at = std::ranges::find_if(exclusions_, [&](const FlagExclusion& e) {
    return e.section == flag.section && IsSet(e.flag);
  });
  return at == exclusions_.end() ? nullptr : &*at;
}

std::string Flags::Usage() const {
  std::string out;
  for (const Flag& flag : flags_) {
    if (!flag.required) continue;
    out += " " + flag.names[0];
    if (!flag.positional()) out += " " + flag.value;
    if (flag.positional() && flag.repeats) out += "...";
  }
  for (const Flag& flag : flags_) {
    if (flag.positional() && !flag.required) out += fmt::format(" [{}]", flag.names[0]);
  }
  bool optional = std::ranges::any_of(flags_, [](const Flag& f) { return !f.required; });
  return out + (optional ? " [FLAGS]" : "");
}

std::vector<std::string> Flags::Sections() const {
  std::vector<std::string> sections;
  for (const Flag& flag : flags_) {
    if (!flag.positional() && std::ranges::find(sections, flag.section) == sections.end())
      sections.push_back(flag.section);
  }
  return sections;
}

std::vector<FlagInfo> Flags::Infos() const {
  std::vector<FlagInfo> out;
  for (const Flag& flag : flags_) {
    if (flag.positional()) out.push_back(flag);
  }
  for (const std::string& section : Sections()) {
    for (const Flag& flag : flags_) {
      if (flag.section == section && !flag.positional()) out.push_back(flag);
    }
  }
  return out;
}

}  // namespace heddle
