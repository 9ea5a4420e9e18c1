#include "heddle/compile/plan/patterns.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

struct Names {
  std::set<std::string_view> params;
  std::set<std::string_view> inputs;
};

Status CheckNodes(const Module& module, const Plan& plan) {
  if (plan.nodes.empty()) return Done{};
  std::set<const PlanNode*> open;
  for (const PlanNode& rule : plan.nodes) open.insert(&rule);
  for (const Graph& graph : module.graphs) {
    std::vector<uint32_t> numbers = NodeNumbers(graph);
    std::erase_if(open,
                  [&](const PlanNode* rule) { return !NodesOf(*rule, graph, numbers).empty(); });
  }
  for (const PlanNode& rule : plan.nodes) {
    if (open.contains(&rule))
      return Error(Diag::kPlan, "line {} of the plan: the graph has no {} number {} ({}) in `{}`",
                   rule.line, rule.op, rule.number, Name(rule.phase), rule.pattern);
  }
  return Done{};
}

// Takes a number of at most 18 digits from `text` at `at`, and advances `at`.
std::optional<int64_t> TakeNumber(std::string_view text, size_t& at) {
  constexpr size_t kMostDigits = 18;
  size_t begin = at;
  int64_t number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    if (at - begin == kMostDigits) return std::nullopt;
    number = number * 10 + (text[at] - '0');
  }
  if (at == begin) return std::nullopt;
  return number;
}

// If a range `{3-7}` at p matches a whole part of the name at n, the positions after both.
std::optional<std::pair<size_t, size_t>> MatchRange(std::string_view pattern, size_t p,
                                                    std::string_view name, size_t n) {
  if (p >= pattern.size() || pattern[p] != '{' || (n > 0 && name[n - 1] != '.'))
    return std::nullopt;
  std::optional<int64_t> first = TakeNumber(pattern, ++p);
  if (!first || p >= pattern.size() || pattern[p] != '-') return std::nullopt;
  std::optional<int64_t> last = TakeNumber(pattern, ++p);
  if (!last || p >= pattern.size() || pattern[p] != '}') return std::nullopt;
  std::optional<int64_t> number = TakeNumber(name, n);
  if (!number || (n < name.size() && name[n] != '.')) return std::nullopt;
  if (*number < *first || *number > *last) return std::nullopt;
  return std::pair(p + 1, n);
}

Names NamesOf(const Module& module) {
  Names names;
  for (const Graph& graph : module.graphs) {
    for (const Input& input : graph.inputs()) {
      if (input.role == InputRole::kParam)
        names.params.insert(input.label);
      else if (input.role != InputRole::kOpt)
        names.inputs.insert(input.label);
    }
  }
  return names;
}

// A graph has thousands of scopes, but most plans mention few of them.
std::set<std::string_view> ModulesOf(const Module& module, const Plan& plan) {
  std::set<std::string_view> modules;
  if (plan.modules.empty()) return modules;
  for (const Graph& graph : module.graphs) modules.merge(AllScopePaths(graph));
  return modules;
}

template <typename Rule>
Status CheckRules(const std::vector<Rule>& rules, std::string_view what,
                  const std::set<std::string_view>& names) {
  for (const Rule& rule : rules) {
    if (std::ranges::any_of(names,
                            [&](std::string_view n) { return MatchesPattern(rule.pattern, n); }))
      continue;
    std::set<std::string> patterns;
    for (std::string_view name : names) patterns.insert(AsPattern(name));
    std::vector<std::string_view> known(patterns.begin(), patterns.end());
    known.insert(known.end(), names.begin(), names.end());
    return Error(Diag::kPlan, "line {} of the plan: the graph has no {} named `{}`{}", rule.line,
                 what, rule.pattern, NearestHint(rule.pattern, known));
  }
  return Done{};
}

}  // namespace

// A star matches as little as possible. If that fails, the last double star matches more. Text
// before a double star never has to be matched again, so the time is at most the product of the
// lengths.
bool MatchesPattern(std::string_view pattern, std::string_view name) {
  struct Star {
    // The position after the star in the pattern, and the end of its match in the name.
    size_t pattern = std::string_view::npos;
    size_t name = 0;
  };
  Star one;
  Star two;
  size_t p = 0;
  size_t n = 0;
  while (n < name.size()) {
    if (std::optional<std::pair<size_t, size_t>> range = MatchRange(pattern, p, name, n)) {
      p = range->first;
      n = range->second;
    } else if (pattern.substr(p).starts_with("**")) {
      two = {p += 2, n};
      one = {};
    } else if (p < pattern.size() && pattern[p] == '*') {
      one = {++p, n};
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (one.pattern != std::string_view::npos && name[one.name] != '.') {
      p = one.pattern;
      n = ++one.name;
    } else if (two.pattern != std::string_view::npos) {
      p = two.pattern;
      n = ++two.name;
      one = {};
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string AsPattern(std::string_view path) {
  std::string out;
  for (std::string_view part : Split(path, '.')) {
    if (!out.empty()) out += '.';
    bool number =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    out += number ? std::string_view("*") : part;
  }
  return out;
}

std::vector<uint32_t> NodeNumbers(const Graph& graph) {
  // Only for lookups, never iterated: keyed by scope, op and phase.
  std::unordered_map<uint64_t, uint32_t> next;
  std::vector<uint32_t> numbers;
  numbers.reserve(graph.node_count());
  for (NodeId id : graph.nodes()) {
    const Node& node = graph[id];
    uint64_t what = uint64_t{node.op.index()} << 8 | static_cast<uint8_t>(node.phase);
    numbers.push_back(next[uint64_t{node.scope.index()} << 32 | what]++);
  }
  return numbers;
}

std::vector<NodeId> NodesOf(const PlanNode& rule, const Graph& graph,
                            const std::vector<uint32_t>& numbers) {
  std::vector<NodeId> nodes;
  for (NodeId id : graph.nodes()) {
    if (numbers[id.index()] == rule.number && graph[id].phase == rule.phase &&
        graph.op(id).name() == rule.op && MatchesPattern(rule.pattern, graph.scope(id)))
      nodes.push_back(id);
  }
  return nodes;
}

std::vector<std::string_view> ScopePaths(std::string_view scope) {
  std::vector<std::string_view> out;
  for (size_t dot = scope.find('.'); dot != std::string_view::npos; dot = scope.find('.', dot + 1))
    out.push_back(scope.substr(0, dot));
  out.push_back(scope);
  return out;
}

std::set<std::string_view> AllScopePaths(const Graph& graph) {
  std::set<std::string_view> paths;
  for (uint32_t s = 0; s < graph.scope_count(); ++s) {
    for (std::string_view path : ScopePaths(graph.scope_name(ScopeId(s)))) paths.insert(path);
  }
  return paths;
}

Status CheckPatterns(const Module& module, const Plan& plan) {
  Names names = NamesOf(module);
  HEDDLE_RETURN_IF_ERROR(CheckRules(plan.params, "parameter", names.params));
  HEDDLE_RETURN_IF_ERROR(CheckRules(plan.inputs, "input", names.inputs));
  HEDDLE_RETURN_IF_ERROR(CheckRules(plan.modules, "module", ModulesOf(module, plan)));
  return CheckNodes(module, plan);
}

}  // namespace heddle::compile
