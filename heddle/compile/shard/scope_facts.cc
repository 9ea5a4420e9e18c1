#include "heddle/compile/shard/scope_facts.h"

#include <map>

namespace heddle::compile {

ScopeFacts::ScopeFacts(const Graph& graph)
    : local_(graph.scope_count()), why_(graph.scope_count(), Why::kTensor) {
  if (graph.regions().empty()) return;
  std::map<std::string_view, const Region*> by_path;
  for (const Region& region : graph.regions())
    by_path.emplace(graph.scope_name(region.scope), &region);
  for (uint32_t s = 0; s < graph.scope_count(); ++s) {
    std::string_view scope = graph.scope_name(ScopeId(s));
    // From the outermost region to the innermost.
    for (size_t end = 0; end != std::string_view::npos;) {
      end = scope.find('.', end + 1);
      auto found = by_path.find(scope.substr(0, end));
      if (found == by_path.end()) continue;
      for (AxisId axis : found->second->local) local_[s].Add(axis);
      why_[s] = found->second->why;
    }
  }
}

}  // namespace heddle::compile
