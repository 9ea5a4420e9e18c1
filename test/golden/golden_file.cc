#include "test/golden/golden_file.h"

#include <fmt/core.h>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

constexpr std::string_view kCase = "=== ";
constexpr std::string_view kSection = "--- ";
constexpr std::string_view kRun = "// RUN: ";

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

void AppendLine(std::string& text, std::string_view line) {
  text += line;
  text += '\n';
}

// Blank lines at the end separate cases and are not part of any text.
void DropBlankEnd(std::string& text) {
  while (text.ends_with("\n\n") || text == "\n") text.pop_back();
}

}  // namespace

const GoldenSection* GoldenCase::Find(std::string_view header) const {
  for (const GoldenSection& section : sections) {
    if (section.header == header) return &section;
  }
  return nullptr;
}

GoldenFile ParseGolden(std::string_view text) {
  GoldenFile file;
  bool in_preamble = false;
  for (std::string_view line : Lines(text)) {
    if (line.starts_with(kCase)) {
      file.cases.push_back({std::string(Trim(line.substr(kCase.size()))), "", "", {}});
      in_preamble = true;
      continue;
    }
    if (file.cases.empty()) {
      AppendLine(file.preamble, line);
      if (line.starts_with(kSection)) {
        file.files.push_back({std::string(Trim(line.substr(kSection.size()))), ""});
      } else if (!file.files.empty()) {
        AppendLine(file.files.back().text, line);
      }
      continue;
    }
    GoldenCase& current = file.cases.back();
    if (line.starts_with(kSection)) {
      current.sections.push_back({std::string(Trim(line.substr(kSection.size()))), ""});
    } else if (!current.sections.empty()) {
      AppendLine(current.sections.back().text, line);
    } else if (in_preamble && line.starts_with("//")) {
      AppendLine(current.preamble, line);
    } else {
      in_preamble = false;
      AppendLine(current.input, line);
    }
  }
  for (GoldenCase& one : file.cases) {
    DropBlankEnd(one.input);
    for (GoldenSection& section : one.sections) DropBlankEnd(section.text);
  }
  return file;
}

std::string PrintGolden(const GoldenFile& file) {
  std::string out = file.preamble;
  for (size_t i = 0; i < file.cases.size(); ++i) {
    const GoldenCase& one = file.cases[i];
    if (i != 0) out += '\n';
    out += fmt::format("{}{}\n{}{}", kCase, one.name, one.preamble, one.input);
    for (const GoldenSection& section : one.sections)
      out += fmt::format("{}{}\n{}", kSection, section.header, section.text);
  }
  return out;
}

std::vector<std::string> RunLines(std::string_view preamble) {
  std::vector<std::string> runs;
  for (std::string_view line : Lines(preamble)) {
    if (line.starts_with(kRun)) runs.emplace_back(Trim(line.substr(kRun.size())));
  }
  return runs;
}

}  // namespace heddle
