// Patterns of a plan, and the names of a module that they are held against.
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
// `layers.3.attention` as `layers.*.attention`: what a pattern for it looks like.
std::string AsPattern(std::string_view path);

// By node: which it is of the nodes of its op in its scope and phase, in order, from 0.
std::vector<uint32_t> NodeNumbers(const Graph& graph);
// The nodes that a statement means.
std::vector<NodeId> NodesOf(const PlanNode& rule, const Graph& graph,
                            const std::vector<uint32_t>& numbers);

// A pattern that nothing in the module matches is a mistake.
Status CheckPatterns(const Module& module, const Plan& plan);

// A scope and those around it, from the outermost: `layers`, `layers.0`, `layers.0.attention`.
std::vector<std::string_view> ScopePaths(std::string_view scope);
// Those of all scopes of a graph.
std::set<std::string_view> AllScopePaths(const Graph& graph);

}  // namespace heddle::compile
