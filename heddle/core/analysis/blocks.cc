#include "heddle/core/analysis/blocks.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace heddle {
namespace {

// The part of a scope that names its block; empty if there is none.
std::string_view BlockOf(std::string_view scope) {
  size_t begin = scope.find('.');
  while (begin != std::string_view::npos) {
    size_t end = std::min(scope.find('.', ++begin), scope.size());
    std::string_view part = scope.substr(begin, end - begin);
    bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) return scope.substr(0, end);
    begin = end < scope.size() ? end : std::string_view::npos;
  }
  return {};
}

}  // namespace

Blocks::Blocks(const Graph& graph)
    : block_(graph.node_count(), kNone), at_top_(graph.node_count()) {
  struct Known {
    int64_t block = kNone;
    bool at_top = false;
    bool seen = false;
  };
  std::vector<Known> known(graph.scope_count());
  std::map<std::string_view, int64_t> numbers;
  for (NodeId id : graph.nodes()) {
    ScopeId scope = graph[id].scope;
    if (!scope) continue;
    Known& of_scope = known[scope.index()];
    if (!of_scope.seen) {
      std::string_view name = graph.scope_name(scope);
      std::string_view block = BlockOf(name);
      of_scope.seen = true;
      of_scope.at_top = block.size() == name.size();
      if (!block.empty()) {
        auto [at, added] = numbers.try_emplace(block, count_);
        count_ += added;
        if (added) names_.push_back(block);
        of_scope.block = at->second;
      }
    }
    block_[id.index()] = of_scope.block;
    at_top_[id.index()] = of_scope.at_top;
  }
}

}  // namespace heddle
