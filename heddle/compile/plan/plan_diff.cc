#include "heddle/compile/plan/plan_diff.h"

#include <map>

#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

// The subject of a statement: the text before the first placement.
std::string_view SubjectOf(std::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\')
      ++i;
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == '[' && !quoted)
      return line.substr(0, i);
  }
  // The last word of a `keep` statement is the decision; the rest is its subject.
  size_t space = line.starts_with("keep ") ? line.rfind(' ') : line.find(' ');
  return line.substr(0, space);
}

// Pairs of subject and statement, in order.
std::vector<std::pair<std::string_view, std::string_view>> Statements(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> out;
  for (std::string_view line : Split(text, '\n')) {
    if (!line.empty()) out.emplace_back(SubjectOf(line), line);
  }
  return out;
}

}  // namespace

std::vector<PlanDifference> Diff(const Plan& a, const Plan& b) {
  std::string text_a = FormatPlan(a);
  std::string text_b = FormatPlan(b);
  std::map<std::string_view, std::string_view> in_b;
  for (const auto& [subject, line] : Statements(text_b)) in_b.emplace(subject, line);
  std::map<std::string_view, std::string_view> in_a;
  std::vector<PlanDifference> out;
  for (const auto& [subject, line] : Statements(text_a)) {
    in_a.emplace(subject, line);
    auto other = in_b.find(subject);
    if (other == in_b.end())
      out.push_back({std::string(line), ""});
    else if (other->second != line)
      out.push_back({std::string(line), std::string(other->second)});
  }
  for (const auto& [subject, line] : Statements(text_b)) {
    if (!in_a.contains(subject)) out.push_back({"", std::string(line)});
  }
  return out;
}

std::string Format(const std::vector<PlanDifference>& differences) {
  std::string out;
  for (const PlanDifference& difference : differences) {
    if (!difference.before.empty()) out += "- " + difference.before + "\n";
    if (!difference.after.empty()) out += "+ " + difference.after + "\n";
  }
  return out;
}

}  // namespace heddle::compile
