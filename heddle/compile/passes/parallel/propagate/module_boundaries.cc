#include "heddle/compile/passes/parallel/propagate/module_boundaries.h"

#include <algorithm>

#include "heddle/compile/plan/patterns.h"

namespace heddle::compile {

Result<ModuleBoundaries> ModuleBoundaries::Find(const Graph& graph, const Plan& plan) {
  ModuleBoundaries out;
  std::map<std::string, uint32_t, std::less<>> by_path;
  for (uint32_t s = 0; s < graph.scope_count(); ++s) {
    std::vector<uint32_t>& found = out.by_scope_.emplace_back();
    for (std::string_view path : ScopePaths(graph.scope_name(ScopeId(s)))) {
      auto known = by_path.find(path);
      if (known != by_path.end()) {
        if (known->second != UINT32_MAX) found.push_back(known->second);
        continue;
      }
      uint32_t boundary = UINT32_MAX;
      for (const PlanModule& rule : plan.modules) {
        if (!MatchesPattern(rule.pattern, path)) continue;
        if (boundary != UINT32_MAX) {
          return Error(Diag::kPlan, "lines {} and {} of the plan both match module `{}`",
                       out.boundaries_[boundary].rule->line, rule.line, path);
        }
        boundary = static_cast<uint32_t>(out.boundaries_.size());
        out.boundaries_.push_back({&rule, std::string(path), {}, {}});
        found.push_back(boundary);
      }
      by_path.emplace(path, boundary);
    }
  }
  return out;
}

std::vector<Region> ModuleBoundaries::Facts(Graph& graph) const {
  std::vector<Region> facts;
  for (const ModuleBoundary& boundary : boundaries_) {
    if (!boundary.rule->local.empty() || boundary.rule->why != Why::kTensor)
      facts.push_back(
          {graph.InternScope(boundary.scope), boundary.rule->local, boundary.rule->why});
  }
  return facts;
}

bool ModuleBoundaries::decomposes_log_softmax(ScopeId scope) const {
  return std::ranges::any_of(
      of(scope), [&](uint32_t i) { return boundaries_[i].rule->decomposes_log_softmax; });
}

const PlanModule* ModuleBoundaries::experts(ScopeId scope) const {
  const PlanModule* found = nullptr;
  for (uint32_t i : of(scope)) {
    if (!boundaries_[i].rule->experts.empty()) found = boundaries_[i].rule;
  }
  return found;
}

const PlanModule* ModuleBoundaries::context(ScopeId scope) const {
  const PlanModule* found = nullptr;
  for (uint32_t i : of(scope)) {
    if (!boundaries_[i].rule->context.empty()) found = boundaries_[i].rule;
  }
  return found;
}

std::vector<uint32_t> Without(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> out;
  for (uint32_t i : a) {
    if (std::ranges::find(b, i) == b.end()) out.push_back(i);
  }
  return out;
}

}  // namespace heddle::compile
