// The modules of a plan that contain a scope, and their boundaries.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// A scope of the graph that a `module` statement matches.
struct ModuleBoundary {
  const PlanModule* rule;
  std::string scope;
  // Placements that forward values had at the boundary, by number of dimensions: outside for values
  // that flow in, inside for values that flow out. Gradients return to these.
  std::map<size_t, PlacementId> outside_in;
  std::map<size_t, PlacementId> inside_out;
};

class ModuleBoundaries {
 public:
  // Fails if two statements match the same scope. `plan` must outlive this.
  static Result<ModuleBoundaries> Find(const Graph& graph, const Plan& plan);

  // The modules that contain a scope, the outermost first.
  const std::vector<uint32_t>& of(ScopeId scope) const {
    return scope ? by_scope_[scope.index()] : none_;
  }
  ModuleBoundary& operator[](uint32_t boundary) { return boundaries_[boundary]; }
  bool empty() const { return boundaries_.empty(); }
  // Whether to decompose log-softmax in the scope.
  bool decomposes_log_softmax(ScopeId scope) const;
  // The innermost module with shared experts that contains the scope, or null.
  const PlanModule* experts(ScopeId scope) const;
  // The innermost module that splits sequences by position and contains the scope, or null.
  const PlanModule* context(ScopeId scope) const;
  // The facts that the graph stores about the plan: local scopes, and purposes.
  std::vector<Region> Facts(Graph& graph) const;

 private:
  std::vector<ModuleBoundary> boundaries_;
  std::vector<std::vector<uint32_t>> by_scope_;
  std::vector<uint32_t> none_;
};

// The elements of `a` that are not in `b`.
std::vector<uint32_t> Without(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);

}  // namespace heddle::compile
