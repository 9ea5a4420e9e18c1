// Flags from a file, and back.
#include <algorithm>

#include "heddle/base/file.h"
#include "heddle/base/text.h"
#include "heddle/cli/flags.h"

namespace heddle {
namespace {

constexpr std::string_view kConfig = "--config";

// What a file has to write for a flag.
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

// Whole numbers are numbers, and one text is a list of one.
bool Fits(JobValueKind given, JobValueKind wanted) {
  return given == wanted || (wanted == JobValueKind::kNumber && given == JobValueKind::kInt) ||
         (wanted == JobValueKind::kTexts && given == JobValueKind::kText);
}

}  // namespace

void Flags::Config(std::string& job) {
  config_ = std::make_unique<ConfigFlags>(ConfigFlags{.file = "", .show = false, .job = job});
  Option("--config", config_->file,
         "a TOML file with values of flags: steps = 10 below [training] is --training.steps=10; "
         "the command line wins over it");
  Switch("--config-show", config_->show,
         "print the whole job as TOML, with where each value came from, and do nothing else");
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
    // A file says nothing about files like it.
    if (name.starts_with("--") && !name.starts_with(kConfig)) keys.push_back(KeyOf(name));
  }
  return keys;
}

Status Flags::SetFromConfig(Flag& flag, const JobEntry& entry, std::string_view origin) {
  JobValueKind wanted = flag.value.empty()       ? JobValueKind::kBool
                        : flag.repeats           ? JobValueKind::kTexts
                        : flag.value == "INT"    ? JobValueKind::kInt
                        : flag.value == "NUMBER" ? JobValueKind::kNumber
                                                 : JobValueKind::kText;
  if (!Fits(entry.value.kind, wanted))
    return Error(Diag::kJobFile, "`{}` is {}, expected {}", entry.key, Expected(entry.value.kind),
                 Expected(wanted));
  if (flag.given) return Done{};
  flag.origin = origin;
  for (const std::string& text : entry.value.texts)
    HEDDLE_RETURN_IF_ERROR(flag.set(entry.key, text));
  return Done{};
}

Status Flags::ReadConfig() {
  const std::string& file = config_->file;
  HEDDLE_TRY(std::string text, ReadFile(file));
  HEDDLE_TRY(std::vector<JobEntry> entries, ParseJob(file, text));
  SourceText source(file, text);
  std::vector<std::pair<std::string, Flag*>> known;
  for (Flag& flag : flags_) {
    for (std::string& key : KeysOf(flag)) known.emplace_back(std::move(key), &flag);
    for (const std::string& old : flag.old_names) known.emplace_back(KeyOf(old), &flag);
  }
  std::vector<std::string_view> keys;
  for (const auto& [key, flag] : known) keys.push_back(key);
  Diagnostics mistakes;
  for (const JobEntry& entry : entries) {
    auto found = std::ranges::find(known, entry.key, &std::pair<std::string, Flag*>::first);
    Status set = found == known.end()
                     ? Status(Error(Diag::kUnknownFlag, "unknown key `{}`{}", entry.key,
                                    NearestHint(entry.key, keys)))
                     : SetFromConfig(*found->second, entry,
                                     fmt::format("{}:{}", file, source.Line(entry.offset)));
    for (const Diagnostic& mistake : set.diagnostics())
      mistakes.push_back(source.At(mistake, entry.offset, entry.width));
  }
  if (mistakes.empty()) return Done{};
  return Failure{std::move(mistakes)};
}

std::string Flags::Job() const {
  std::vector<JobLine> lines;
  for (const Flag& flag : flags_) {
    std::vector<std::string> keys = KeysOf(flag);
    if (!keys.empty()) lines.push_back({keys[0], flag.get(), flag.origin});
  }
  return FormatJob(lines);
}

std::string Flags::MarkdownTable() const {
  std::string out = "| flag | meaning |\n| --- | --- |\n";
  for (const auto& [name, help] : Meanings()) {
    std::string meaning;
    for (char c : help) meaning += c == '|' ? "\\|" : std::string(1, c);
    out += fmt::format("| `{}` | {} |\n", name, meaning);
  }
  return out;
}

}  // namespace heddle
