// Which layers of a plan a scope lies in, and what crosses their boundaries.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// One scope of the graph that a statement of the plan matches.
struct Layer {
  const PlanLayer* rule;
  std::string scope;
  // What forward brought to the boundary, by number of dimensions: the placement outside of what flows in, and inside of
  // what flows out. Gradients go back to these.
  std::map<size_t, PlacementId> outside_in;
  std::map<size_t, PlacementId> inside_out;
};

class Regions {
 public:
  // Fails where two statements are about one scope. `plan` outlives the regions.
  static Result<Regions> Find(const Graph& graph, const Plan& plan);

  // The layers that a scope lies in, the outermost first.
  const std::vector<uint32_t>& of(ScopeId scope) const {
    return scope ? by_scope_[scope.index()] : none_;
  }
  Layer& operator[](uint32_t layer) { return layers_[layer]; }
  bool empty() const { return layers_.empty(); }
  // Whether log-softmax is written out there.
  bool write_out(ScopeId scope) const;
  // The innermost layer around the scope whose experts ranks share, or null.
  const PlanLayer* experts(ScopeId scope) const;
  // What the graph is to remember of the plan: which scopes are local, and purposes.
  std::vector<Region> Facts(Graph& graph) const;

 private:
  std::vector<Layer> layers_;
  std::vector<std::vector<uint32_t>> by_scope_;
  std::vector<uint32_t> none_;
};

// The parts of `a` that are not in `b`.
std::vector<uint32_t> Without(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);

}  // namespace heddle::compile
