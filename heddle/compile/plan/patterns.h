// Patterns of a plan, and the names in a module that they match.
//
// In a pattern `*` matches anything within one part of a dotted name, `**` anything, and
// `{3-7}` a part that is a number from 3 to 7.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

bool MatchesPattern(std::string_view pattern, std::string_view name);
// Converts a name to a pattern: `layers.3.attention` to `layers.*.attention`.
std::string AsPattern(std::string_view path);

// Indexed by node: its index among the nodes of its op in its scope and phase.
std::vector<uint32_t> NodeNumbers(const Graph& graph);
// The nodes that a statement matches.
std::vector<NodeId> NodesOf(const PlanNode& rule, const Graph& graph,
                            const std::vector<uint32_t>& numbers);

// Fails for a pattern that matches nothing in the module.
Status CheckPatterns(const Module& module, const Plan& plan);

// A scope and its ancestors, from the outermost: `layers`, `layers.0`, `layers.0.attention`.
std::vector<std::string_view> ScopePaths(std::string_view scope);
// The scope paths of all scopes of a graph.
std::set<std::string_view> AllScopePaths(const Graph& graph);

}  // namespace heddle::compile
