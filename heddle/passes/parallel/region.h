// Which modules of a plan a scope lies in, and what crosses their boundaries.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "heddle/ir/graph.h"
#include "heddle/passes/parallel/plan.h"

namespace heddle {

// One module of the graph that a statement of the plan matches.
struct ModuleInstance {
  const PlanModule* rule;
  std::string path;
  // What forward brought to the boundary, by number of dimensions: the placement outside of what flows in, and inside of
  // what flows out. Gradients go back to these.
  std::map<size_t, PlacementId> outside_in;
  std::map<size_t, PlacementId> inside_out;
};

class Regions {
 public:
  // Fails for a pattern that no module of the graph has, and for two statements about one module that contradict.
  static Result<Regions> Find(const Graph& graph, const Plan& plan);

  // The instances that a scope lies in, the outermost first.
  const std::vector<uint32_t>& of(ScopeId scope) const {
    return scope ? by_scope_[scope.index()] : none_;
  }
  ModuleInstance& operator[](uint32_t instance) { return instances_[instance]; }
  // Axes that are local in a scope, the purpose of what is inserted there, and whether it is written out.
  Axes local(ScopeId scope) const;
  Why why(ScopeId scope) const;
  bool write_out(ScopeId scope) const;

 private:
  std::vector<ModuleInstance> instances_;
  std::vector<std::vector<uint32_t>> by_scope_;
  std::vector<uint32_t> none_;
};

// The parts of `a` that are not in `b`.
std::vector<uint32_t> Without(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);

}  // namespace heddle
