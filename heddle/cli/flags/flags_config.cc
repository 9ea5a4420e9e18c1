// Reads flags from a job file, and writes them as one.
#include <algorithm>

#include <fmt/ranges.h>

#include "heddle/cli/flags/flags.h"
#include "heddle/cli/flags/foreign_keys.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

constexpr std::string_view kConfig = "--config";

// Describes a kind of value.
std::string_view Expected(JobValueKind kind) {
  switch (kind) {
    case JobValueKind::kText: return "a text in quotes";
    case JobValueKind::kInt: return "a whole number";
    case JobValueKind::kNumber: return "a number";
    case JobValueKind::kBool: return "true or false";
    case JobValueKind::kTexts: return "a list of texts";
  }
  return "";
}

// A whole number is a number, and one text is a list of one.
bool Fits(JobValueKind given, JobValueKind wanted) {
  return given == wanted || (wanted == JobValueKind::kNumber && given == JobValueKind::kInt) ||
         (wanted == JobValueKind::kTexts && given == JobValueKind::kText);
}

std::string JoinedTexts(const JobValue& value) {
  std::vector<std::string_view> views(value.texts.begin(), value.texts.end());
  return Join(views, ", ");
}

}  // namespace

void Flags::Config(std::string& job) {
  config_ = std::make_unique<ConfigFlags>(ConfigFlags{.file = "", .show = false, .job = job});
  Section("General");
  Option("--config=FILE", config_->file,
         "TOML file with values of flags: `steps = 10` below [training] is --training.steps=10; "
         "flags on the command line override it");
  Switch("--config-show", config_->show,
         "print the whole job as TOML, with the origin of each value, and exit");
}

std::string Flags::KeyOf(std::string_view name) const {
  std::string key(name.substr(2));
  bool table = std::ranges::any_of(flags_, [&](const Flag& flag) {
    return std::ranges::any_of(flag.names, [&](const std::string& other) {
      return other.starts_with(std::string(name) + ".");
    });
  });
  return table ? key + ".name" : key;
}

std::vector<std::string> Flags::KeysOf(const Flag& flag) const {
  std::vector<std::string> keys;
  for (const std::string& name : flag.names) {
    // A job file cannot name another one.
    if (name.starts_with("--") && !name.starts_with(kConfig)) keys.push_back(KeyOf(name));
  }
  return keys;
}

std::set<std::string> Flags::Keys() const {
  std::set<std::string> keys;
  for (const Flag& flag : flags_) {
    for (std::string& key : KeysOf(flag)) keys.insert(std::move(key));
  }
  return keys;
}

Status Flags::SetFromConfig(Flag& flag, const JobEntry& entry, std::string_view origin) {
  // Older job files write some switches as text, "true" or "false", and unset choices as "". The
  // setter checks other texts.
  bool is_text = entry.value.kind == JobValueKind::kText;
  bool quoted_switch = flag.kind == JobValueKind::kBool && is_text;
  if (is_text && entry.value.texts[0].empty() && (quoted_switch || !flag.choices.empty()))
    return Done{};
  if (!quoted_switch && !Fits(entry.value.kind, flag.kind))
    return Error(Diag::kJobFile, "`{}` is {}, expected {}", entry.key, Expected(entry.value.kind),
                 Expected(flag.kind));
  const ForeignKey* foreign = FindForeignKey(entry.key);
  if (flag.given || (foreign != nullptr && foreign->IsOff(JoinedTexts(entry.value)))) return Done{};
  std::vector<std::string> texts = entry.value.texts;
  if (foreign != nullptr) {
    for (std::string& text : texts) text = foreign->Translate(text);
  }
  if (flag.origin != "default") {
    // Older job files have two keys for one flag.
    std::optional<JobValue> set = flag.get();
    if (set && set->texts == texts) return Done{};
    return Error(Diag::kJobFile, "`{}` sets {}, which {} sets, too", entry.key, flag.names.back(),
                 flag.origin);
  }
  flag.origin = origin;
  for (const std::string& text : texts) HEDDLE_RETURN_IF_ERROR(flag.set(entry.key, text));
  return Done{};
}

Status Flags::ReadConfig() {
  const std::string& file = config_->file;
  if (file.empty())
    return Error(Diag::kUsage, "--config is empty; give it a TOML file, or leave it out");
  HEDDLE_TRY(std::string text, ReadFile(file));
  HEDDLE_TRY(std::vector<JobEntry> entries, ParseJob(file, text));
  SourceText source(file, text);
  std::vector<std::pair<std::string, Flag*>> known;
  for (Flag& flag : flags_) {
    for (std::string& key : KeysOf(flag)) known.emplace_back(std::move(key), &flag);
  }
  std::vector<std::string_view> keys;
  for (const auto& [key, flag] : known) keys.push_back(key);
  auto set = [&](const JobEntry& entry) -> Status {
    const ForeignKey* foreign = FindForeignKey(entry.key);
    auto find = [&](std::string_view key) {
      return std::ranges::find(known, key, &std::pair<std::string, Flag*>::first);
    };
    auto found = find(entry.key);
    if (found == known.end() && foreign != nullptr && foreign->is_alias())
      found = find(foreign->text);
    if (found != known.end())
      return SetFromConfig(*found->second, entry,
                           fmt::format("{}:{}", file, source.Line(entry.offset)));
    if (foreign != nullptr && !foreign->is_alias())
      return RejectForeign(*foreign, entry.key, JoinedTexts(entry.value), file);
    std::string key(foreign != nullptr ? foreign->text : entry.key);
    if (other_keys_.contains(entry.key) || other_keys_.contains(key)) return Done{};
    return Error(Diag::kUnknownFlag, "unknown key `{}`{}", entry.key, NearestHint(entry.key, keys));
  };
  Diagnostics mistakes;
  for (const JobEntry& entry : entries) {
    Status done = set(entry);
    for (const Diagnostic& mistake : done.diagnostics())
      mistakes.push_back(source.At(mistake, entry.offset, entry.width));
  }
  if (mistakes.empty()) return Done{};
  return Failure{std::move(mistakes)};
}

JobLine Flags::LineOf(const Flag& flag) const {
  std::optional<JobValue> value = flag.get();
  for (size_t i = 0; flag.absolute != nullptr && value && i < value->texts.size(); ++i) {
    std::string& text = value->texts[i];
    if (!text.empty() && text != "-") text = flag.absolute(text);
  }
  return {KeysOf(flag)[0], std::move(value), flag.origin};
}

std::string Flags::Job() const {
  std::vector<JobLine> lines;
  for (const Flag& flag : flags_) {
    if (!KeysOf(flag).empty() && ExclusionOf(flag) == nullptr) lines.push_back(LineOf(flag));
  }
  return FormatJob(lines);
}

std::vector<JobLine> Flags::Lines(std::span<const std::string_view> sections) const {
  std::vector<JobLine> lines;
  for (const Flag& flag : flags_) {
    if (std::ranges::find(sections, flag.section) == sections.end()) continue;
    JobLine line = LineOf(flag);
    line.origin.clear();
    bool set = line.value && !line.value->texts.empty() && !line.value->texts[0].empty();
    if (set) lines.push_back(std::move(line));
  }
  return lines;
}

std::string Flags::ValueLines() const {
  std::string out;
  for (const Flag& flag : flags_) {
    if (KeysOf(flag).empty()) continue;
    // The long name.
    const std::string& name = *std::ranges::find_if(
        flag.names, [](const std::string& each) { return each.starts_with("--"); });
    std::optional<JobValue> value = flag.get();
    std::string line = value ? fmt::format("{}={}", name, fmt::join(value->texts, ","))
                             : fmt::format("{} is not set", name);
    std::ranges::replace(line, '\n', ' ');
    out += line + "\n";
  }
  return out;
}

std::string Flags::MarkdownTable() const {
  std::string out;
  std::string section;
  for (const FlagInfo& flag : Infos()) {
    if (flag.section != section) {
      section = flag.section;
      out += fmt::format("{}## {}\n\n| flag | meaning |\n| --- | --- |\n", out.empty() ? "" : "\n",
                         section);
    }
    std::string meaning;
    for (char c : flag.help) meaning += c == '|' ? "\\|" : std::string(1, c);
    out += fmt::format("| `{}` | {} |\n", flag.Title(), meaning);
  }
  return out;
}

}  // namespace heddle
