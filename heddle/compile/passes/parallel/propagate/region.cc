#include "heddle/compile/passes/parallel/propagate/region.h"

#include <algorithm>

#include "heddle/compile/plan/patterns.h"

namespace heddle::compile {

Result<Regions> Regions::Find(const Graph& graph, const Plan& plan) {
  Regions out;
  std::map<std::string, uint32_t, std::less<>> by_path;
  for (uint32_t s = 0; s < graph.scope_count(); ++s) {
    std::vector<uint32_t>& found = out.by_scope_.emplace_back();
    for (std::string_view path : ScopePaths(graph.scope_name(ScopeId(s)))) {
      auto known = by_path.find(path);
      if (known != by_path.end()) {
        if (known->second != UINT32_MAX) found.push_back(known->second);
        continue;
      }
      uint32_t layer = UINT32_MAX;
      for (const PlanModule& rule : plan.modules) {
        if (!MatchesPattern(rule.pattern, path)) continue;
        if (layer != UINT32_MAX) {
          return Error(Diag::kPlan, "lines {} and {} of the plan are both about module `{}`",
                       out.layers_[layer].rule->line, rule.line, path);
        }
        layer = static_cast<uint32_t>(out.layers_.size());
        out.layers_.push_back({&rule, std::string(path), {}, {}});
        found.push_back(layer);
      }
      by_path.emplace(path, layer);
    }
  }
  return out;
}

std::vector<Region> Regions::Facts(Graph& graph) const {
  std::vector<Region> facts;
  for (const Layer& layer : layers_) {
    if (!layer.rule->local.empty() || layer.rule->why != Why::kTensor)
      facts.push_back({graph.InternScope(layer.scope), layer.rule->local, layer.rule->why});
  }
  return facts;
}

bool Regions::write_out(ScopeId scope) const {
  return std::ranges::any_of(of(scope), [&](uint32_t i) { return layers_[i].rule->write_out; });
}

const PlanModule* Regions::experts(ScopeId scope) const {
  const PlanModule* found = nullptr;
  for (uint32_t i : of(scope)) {
    if (!layers_[i].rule->experts.empty()) found = layers_[i].rule;
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
