#include "heddle/compile/plan/marks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "heddle/compile/plan/patterns.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/edit/rewriter.h"

namespace heddle::compile {
namespace {

// A scope split at its first number: `layers.`, 3, `.attention`.
struct NumberedScope {
  std::string before;
  std::string after;
  int64_t number = -1;
};

NumberedScope SplitScope(std::string_view scope) {
  size_t begin = 0;
  for (std::string_view part : Split(scope, '.')) {
    // A longer number is not a layer number.
    bool number = !part.empty() && part.size() < 10 &&
                  part.find_first_not_of("0123456789") == std::string_view::npos &&
                  (part.size() == 1 || part[0] != '0');
    if (number)
      return {std::string(scope.substr(0, begin)), std::string(scope.substr(begin + part.size())),
              std::stoll(std::string(part))};
    begin += part.size() + 1;
  }
  return {std::string(scope), "", -1};
}

// The place that equal layers share: scope around the number, op, phase, number of the node,
// result.
using Place = std::tuple<std::string, std::string, std::string, Phase, int64_t, int64_t>;
struct Entry {
  int64_t layer = -1;
  Keep keep = Keep::kDefault;
};

void AddStatements(const Place& place, std::vector<Entry> entries, std::vector<PlanMark>& out) {
  const auto& [before, after, op, phase, number, result] = place;
  std::ranges::stable_sort(entries, {}, &Entry::layer);
  auto add = [&](std::string pattern, Keep keep) {
    out.push_back({std::move(pattern), op, phase, number, result, keep, 0});
  };
  for (size_t i = 0; i < entries.size();) {
    size_t end = i + 1;
    while (end < entries.size() && entries[end].keep == entries[i].keep) ++end;
    int64_t first = entries[i].layer;
    int64_t last = entries[end - 1].layer;
    bool all = end - i == entries.size() && end > i + 1;
    if (entries[i].keep != Keep::kDefault) {
      std::string layer = first < 0       ? std::string()
                          : all           ? "*"
                          : first == last ? std::to_string(first)
                                          : fmt::format("{{{}-{}}}", first, last);
      add(before + layer + after, entries[i].keep);
    }
    i = end;
  }
}

}  // namespace

std::vector<PlanMark> StatementsOf(const Graph& graph, const std::vector<Keep>& marks) {
  std::vector<uint32_t> numbers = NodeNumbers(graph);
  std::map<Place, std::vector<Entry>> entries;
  // In the order of their first occurrence in the graph.
  std::vector<const Place*> order;
  for (NodeId node : graph.nodes()) {
    NumberedScope scope = SplitScope(graph.scope(node));
    int64_t result = 0;
    for (ValueId v : graph.results(node)) {
      Place place{scope.before,      scope.after,           std::string(graph.op(node).name()),
                  graph[node].phase, numbers[node.index()], result++};
      auto [at, added] = entries.try_emplace(std::move(place));
      if (added) order.push_back(&at->first);
      // Existing marks of the graph are not part of the plan.
      Keep keep = graph[v].keep == Keep::kDefault ? marks[v.index()] : Keep::kDefault;
      at->second.push_back({scope.number, keep});
    }
  }
  std::vector<PlanMark> out;
  for (const Place* place : order) AddStatements(*place, std::move(entries[*place]), out);
  return out;
}

Status SetMarks(const std::vector<PlanMark>& statements, Graph& graph) {
  std::vector<uint32_t> numbers = NodeNumbers(graph);
  // Keyed by op, phase and number, so that patterns are compared with few scopes.
  std::map<std::tuple<std::string_view, Phase, int64_t>, std::vector<NodeId>> nodes;
  for (NodeId node : graph.nodes())
    nodes[{graph.op(node).name(), graph[node].phase, numbers[node.index()]}].push_back(node);
  std::vector<std::pair<ValueId, Keep>> marked;
  for (const PlanMark& mark : statements) {
    bool matches = false;
    auto found = nodes.find({mark.op, mark.phase, mark.number});
    if (found != nodes.end()) {
      for (NodeId node : found->second) {
        if (!MatchesPattern(mark.pattern, graph.scope(node))) continue;
        auto results = graph.results(node);
        if (mark.result >= static_cast<int64_t>(results.size())) continue;
        matches = true;
        ValueId v = results[static_cast<size_t>(mark.result)];
        if (graph[v].keep == Keep::kDefault) marked.emplace_back(v, mark.keep);
      }
    }
    if (matches) continue;
    return Error(Diag::kPlan,
                 "line {} of the plan: the lowered graph has no result {} of {} number {} ({}) in "
                 "`{}`; the `keep` statements belong to another model or device",
                 mark.line, mark.result, mark.op, mark.number, Name(mark.phase), mark.pattern);
  }
  Rewriter rewriter(graph);
  for (const auto& [v, keep] : marked) rewriter.SetKeep(v, keep);
  rewriter.Commit();
  return Done{};
}

}  // namespace heddle::compile
