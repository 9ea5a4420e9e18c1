// Facts that the regions of a graph state about its scopes.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

class ScopeFacts {
 public:
  explicit ScopeFacts(const Graph& graph);

  // The axes over which every rank works on its own part, from all regions around the scope.
  Axes local(ScopeId scope) const { return scope ? local_[scope.index()] : Axes(); }
  // The purpose of redistributions in the scope, from the innermost region.
  Why why(ScopeId scope) const { return scope ? why_[scope.index()] : Why::kTensor; }

 private:
  std::vector<Axes> local_;
  std::vector<Why> why_;
};

}  // namespace heddle::compile
