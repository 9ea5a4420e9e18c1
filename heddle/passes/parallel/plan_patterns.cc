#include "heddle/passes/parallel/plan_patterns.h"

#include <algorithm>
#include <set>

#include "heddle/base/text.h"

namespace heddle {
namespace {

// `layers.3.attention` as `layers.*.attention`: what a pattern for it looks like.
std::string AsPattern(std::string_view path) {
  std::string out;
  for (std::string_view part : Split(path, '.')) {
    if (!out.empty()) out += '.';
    bool number =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    out += number ? std::string_view("*") : part;
  }
  return out;
}

struct Names {
  std::set<std::string_view> params;
  std::set<std::string_view> inputs;
  std::set<std::string_view> modules;
};

Names NamesOf(const Module& module) {
  Names names;
  for (const Graph& graph : module.graphs) {
    for (const Input& input : graph.inputs()) {
      if (input.role == InputRole::kParam)
        names.params.insert(input.label);
      else if (input.role != InputRole::kOpt)
        names.inputs.insert(input.label);
    }
    for (uint32_t s = 0; s < graph.scope_count(); ++s) {
      for (std::string_view path : ModulePaths(graph.scope_name(ScopeId(s))))
        names.modules.insert(path);
    }
  }
  return names;
}

template <typename Rule>
Status CheckRules(const std::vector<Rule>& rules, std::string_view what,
                  const std::set<std::string_view>& names) {
  for (const Rule& rule : rules) {
    if (std::ranges::any_of(names,
                            [&](std::string_view n) { return MatchesPattern(rule.pattern, n); }))
      continue;
    std::set<std::string> patterns;
    for (std::string_view name : names) patterns.insert(AsPattern(name));
    std::vector<std::string_view> known(patterns.begin(), patterns.end());
    known.insert(known.end(), names.begin(), names.end());
    return Error(Diag::kPlan, "line {} of the plan: no {} of the graph is called `{}`{}", rule.line,
                 what, rule.pattern, NearestHint(rule.pattern, known));
  }
  return Done{};
}

}  // namespace

std::vector<std::string_view> ModulePaths(std::string_view scope) {
  std::vector<std::string_view> out;
  for (size_t dot = scope.find('.'); dot != std::string_view::npos; dot = scope.find('.', dot + 1))
    out.push_back(scope.substr(0, dot));
  out.push_back(scope);
  return out;
}

Status CheckPatterns(const Module& module, const Plan& plan) {
  Names names = NamesOf(module);
  HEDDLE_RETURN_IF_ERROR(CheckRules(plan.params, "parameter", names.params));
  HEDDLE_RETURN_IF_ERROR(CheckRules(plan.inputs, "input", names.inputs));
  return CheckRules(plan.modules, "module", names.modules);
}

}  // namespace heddle
