// heddle-golden FILE... [--case=NAME] [--update]: runs golden files, or rewrites their
// expectations.
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "heddle/core/base/file.h"
#include "test/golden/golden_run.h"

namespace heddle {
namespace {

struct Counts {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
};

std::string Text(const std::vector<GoldenSection>& sections) {
  std::string text;
  for (const GoldenSection& section : sections)
    text += fmt::format("--- {}\n{}", section.header, section.text);
  return text;
}

bool RunFile(const std::string& path, const std::string& only, bool update, Counts& counts) {
  Result<std::string> text = ReadFile(path);
  if (!text.ok()) {
    fmt::print(stderr, "{}", Format(text.diagnostics()));
    return false;
  }
  GoldenFile file = ParseGolden(*text);
  if (file.cases.empty()) {
    fmt::print(stderr, "{}: no case; expected a line `=== name`\n", path);
    return false;
  }
  for (GoldenCase& one : file.cases) {
    if (!only.empty() && one.name != only) continue;
    GoldenOutcome outcome = RunGoldenCase(file, one);
    counts.skipped += outcome.skipped;
    bool same = Text(outcome.sections) == Text(one.sections);
    if (!outcome.problem.empty() || (!same && !update)) {
      ++counts.failed;
      fmt::print("FAILED {}: {}\n", path, one.name);
      if (!outcome.problem.empty()) fmt::print("  {}\n", outcome.problem);
      if (!same)
        fmt::print("expected:\n{}\ngot:\n{}\n", Text(one.sections), Text(outcome.sections));
      fmt::print("to run it alone: heddle-golden {} --case={}\n", path, one.name);
      continue;
    }
    ++counts.passed;
    one.sections = std::move(outcome.sections);
  }
  if (!update) return true;
  std::string printed = PrintGolden(file);
  if (printed == *text) return true;
  fmt::print("updated {}\n", path);
  return WriteFile(path, printed).ok();
}

int Main(const std::vector<std::string>& args) {
  std::string only;
  bool update = false;
  std::vector<std::string> paths;
  for (const std::string& arg : args) {
    if (arg == "--update") {
      update = true;
    } else if (arg.starts_with("--case=")) {
      only = arg.substr(7);
    } else if (arg.starts_with("--") || arg.empty()) {
      fmt::print("usage: heddle-golden FILE... [--case=NAME] [--update]\n");
      return arg == "--help" ? 0 : 1;
    } else {
      paths.push_back(arg);
    }
  }
  Counts counts;
  bool ok = !paths.empty();
  for (const std::string& path : paths) ok &= RunFile(path, only, update, counts);
  if (!only.empty() && counts.passed + counts.failed == 0) {
    fmt::print(stderr, "no case is called `{}`\n", only);
    ok = false;
  }
  fmt::print("{} passed, {} failed, {} skipped\n", counts.passed, counts.failed, counts.skipped);
  if (counts.skipped > 0) fmt::print("skipped: {} `equal` parts: no libtorch\n", counts.skipped);
  return ok && counts.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  return heddle::Main(std::vector<std::string>(argv + 1, argv + argc));
}
