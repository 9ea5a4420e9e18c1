#include "test/golden/golden_run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "heddle/cli/cli.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#if HEDDLE_TORCH
#include "heddle/cli/torch/commands.h"
#include "test/golden/equal.h"
#endif

namespace heddle {
namespace {

#if HEDDLE_TORCH
constexpr auto kMoreCommands = AddTorchCommands;
#else
constexpr void (*kMoreCommands)(CommandSet&) = nullptr;
#endif

// Splits a command as a shell does: spaces separate, single and double quotes group.
std::vector<std::string> Words(std::string_view command) {
  std::vector<std::string> words;
  char quote = 0;
  bool in_word = false;
  for (char c : command) {
    if (quote == 0 && c == ' ') {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      words.back() += c;
    }
  }
  return words;
}

// Inputs other than %s, as files in a directory that the destructor removes.
class ExtraFiles {
 public:
  ExtraFiles(const GoldenFile& file, const GoldenCase& one) {
    for (const auto& sections : {file.files, one.sections}) {
      for (const GoldenSection& section : sections) {
        if (!section.header.starts_with("file ")) continue;
        if (!dir_) dir_.emplace();
        std::string name = section.header.substr(5);
        paths_["%" + name] = dir_->path() + "/" + name;
        if (!WriteFile(paths_["%" + name], section.text).ok()) return;
      }
    }
  }

  // Substitutes a word, the value of a flag, or each of several comma-separated values.
  std::string Substitute(const std::string& word) const {
    size_t value = word.starts_with("--") ? word.find('=') + 1 : 0;
    std::string out;
    for (std::string_view part : Split(std::string_view(word).substr(value), ',')) {
      auto at = paths_.find(std::string(part));
      out += part == "%s" ? "-" : at == paths_.end() ? part : at->second;
      out += ',';
    }
    out.pop_back();
    return word.substr(0, value) + out;
  }
  // Replaces paths, which differ from run to run, by names.
  std::string Hide(std::string text) const {
    if (!dir_) return text;
    std::string prefix = dir_->path() + "/";
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
      text.erase(at, prefix.size());
    return text;
  }

 private:
  std::optional<TempDir> dir_;
  std::map<std::string, std::string> paths_;
};

// Replaces times, which differ from run to run.
std::string HideTimes(const std::string& text) {
  static const std::regex in_text("\\bin [0-9.]+ (ns|us|ms|s)\\b");
  static const std::regex in_json("(seconds\": )[0-9.e+-]+");
  return std::regex_replace(std::regex_replace(text, in_text, "in TIME"), in_json, "$1TIME");
}

void AddSection(std::vector<GoldenSection>& sections, std::string header, std::string text) {
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  sections.push_back({std::move(header), std::move(text)});
}

// Splits standard error into its sections; the text before the first is `error`.
void SplitErrors(std::vector<GoldenSection>& sections, std::string_view text) {
  std::string header = "error";
  std::string body;
  auto flush = [&] {
    if (header != "error" || !body.empty()) AddSection(sections, header, body);
  };
  for (std::string_view line : Split(text, '\n')) {
    if (line.starts_with("--- ")) {
      flush();
      header = line.substr(4);
      body.clear();
    } else if (!line.empty() || !body.empty()) {
      body += line;
      body += '\n';
    }
  }
  while (body.ends_with("\n\n")) body.pop_back();
  flush();
}

void CheckEqual(const std::string& header, const std::string& input, const std::string& output,
                GoldenOutcome& outcome) {
  int ranks = 0;
  int end = 0;
  if (std::sscanf(header.c_str(), "equal ranks=%d%n", &ranks, &end) != 1 ||
      static_cast<size_t>(end) != header.size()) {
    outcome.problem = fmt::format("`--- {}` is not `--- equal ranks=N`", header);
    return;
  }
#if HEDDLE_TORCH
  std::string why = WhyNotEqual(input, output, ranks);
  if (!why.empty()) outcome.problem = fmt::format("on {} ranks: {}", ranks, why);
#else
  (void)input, (void)output;
  ++outcome.skipped;
#endif
}

// Splits a line into its commands at `|`.
std::vector<std::vector<std::string>> Commands(std::string_view line) {
  std::vector<std::vector<std::string>> commands(1);
  for (std::string& word : Words(line)) {
    if (word == "|") {
      commands.emplace_back();
    } else {
      commands.back().push_back(std::move(word));
    }
  }
  return commands;
}

// Returns the value at `pointer`, with one line per member.
std::string JsonAt(const std::string& text, const std::string& pointer) {
  nlohmann::ordered_json value = nlohmann::ordered_json::parse(text, nullptr, false);
  nlohmann::ordered_json::json_pointer at(pointer);
  if (value.is_discarded() || !value.contains(at)) return "no value at " + pointer + "\n";
  std::string out;
  for (const auto& [key, member] : value[at].items())
    out +=
        value[at].is_array() ? member.dump() + "\n" : fmt::format("{}: {}\n", key, member.dump());
  return out;
}

}  // namespace

GoldenOutcome RunGoldenCase(const GoldenFile& file, const GoldenCase& one) {
  GoldenOutcome outcome;
  std::vector<std::string> runs = RunLines(one.preamble);
  if (runs.empty()) runs = RunLines(file.preamble);
  if (runs.size() != 1 || Words(runs[0])[0] != "heddle") {
    outcome.problem = "the case needs one line `// RUN: heddle ...`";
    return outcome;
  }
  ExtraFiles files(file, one);
  std::string input = one.input;
  std::ostringstream out;
  std::ostringstream err;
  int code = 0;
  for (std::vector<std::string>& args : Commands(runs[0])) {
    if (code == 0 && !out.str().empty()) input = std::exchange(out, {}).str();
    if (code == 0 && args.size() == 2 && args[0] == "json") {
      out << JsonAt(input, args[1]);
      continue;
    }
    if (code != 0 || args.empty() || args[0] != "heddle") break;
    args.erase(args.begin());
    for (std::string& arg : args) arg = files.Substitute(arg);
    auto in = [&]() -> Result<std::string> { return input; };
    code = static_cast<int>(RunCommandLine(args, {in, out, err}, kMoreCommands));
  }

  for (const GoldenSection& section : one.sections) {
    if (section.header.starts_with("file ")) outcome.sections.push_back(section);
  }
  if (!out.str().empty()) {
    bool unchanged = out.str() == one.input;
    AddSection(outcome.sections, unchanged ? "out unchanged" : "out",
               unchanged ? "" : HideTimes(files.Hide(out.str())));
  }
  SplitErrors(outcome.sections, HideTimes(files.Hide(err.str())));
  bool usual = code == (one.must_fail() ? 1 : 0);
  if (!usual) AddSection(outcome.sections, fmt::format("exit {}", code), "");
  if ((code == 0) == one.must_fail()) {
    outcome.problem = fmt::format("exit code {}, but the case is called `{}`", code, one.name);
  }
  for (const GoldenSection& section : one.sections) {
    if (!section.header.starts_with("equal")) continue;
    outcome.sections.push_back(section);
    CheckEqual(section.header, one.input, out.str(), outcome);
  }
  return outcome;
}

}  // namespace heddle
