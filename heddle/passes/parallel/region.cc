#include "heddle/passes/parallel/region.h"

#include <algorithm>

#include "heddle/passes/parallel/plan_patterns.h"

namespace heddle {

Result<Regions> Regions::Find(const Graph& graph, const Plan& plan) {
  Regions out;
  std::map<std::string, uint32_t, std::less<>> by_path;
  for (uint32_t s = 0; s < graph.scope_count(); ++s) {
    std::vector<uint32_t>& found = out.by_scope_.emplace_back();
    for (std::string_view path : ModulePaths(graph.scope_name(ScopeId(s)))) {
      auto known = by_path.find(path);
      if (known != by_path.end()) {
        if (known->second != UINT32_MAX) found.push_back(known->second);
        continue;
      }
      uint32_t instance = UINT32_MAX;
      for (const PlanModule& rule : plan.modules) {
        if (!MatchesPattern(rule.pattern, path)) continue;
        if (instance != UINT32_MAX) {
          return Error(Diag::kPlan, "lines {} and {} of the plan are both about module `{}`",
                       out.instances_[instance].rule->line, rule.line, path);
        }
        instance = static_cast<uint32_t>(out.instances_.size());
        out.instances_.push_back({&rule, std::string(path), {}, {}});
        found.push_back(instance);
      }
      by_path.emplace(path, instance);
    }
  }
  return out;
}

Axes Regions::local(ScopeId scope) const {
  Axes axes;
  for (uint32_t i : of(scope)) {
    for (AxisId axis : instances_[i].rule->local) axes.Add(axis);
  }
  return axes;
}

Why Regions::why(ScopeId scope) const {
  const std::vector<uint32_t>& found = of(scope);
  return found.empty() ? Why::kTensor : instances_[found.back()].rule->why;
}

bool Regions::write_out(ScopeId scope) const {
  return std::ranges::any_of(of(scope), [&](uint32_t i) { return instances_[i].rule->write_out; });
}

std::vector<uint32_t> Without(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> out;
  for (uint32_t i : a) {
    if (std::ranges::find(b, i) == b.end()) out.push_back(i);
  }
  return out;
}

}  // namespace heddle
