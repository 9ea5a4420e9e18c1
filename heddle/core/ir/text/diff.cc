#include "heddle/core/ir/text/diff.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include <fmt/core.h>

#include "heddle/core/ir/text/print.h"

namespace heddle {
namespace {

constexpr std::string_view kKinds[] = {"appeared", "vanished", "changed", "renamed", "moved"};

// Marks a longest increasing subsequence of `positions`.
std::vector<bool> LongestIncreasing(const std::vector<uint32_t>& positions) {
  // tails[k] is the index of the smallest end of an increasing run of length k + 1.
  std::vector<size_t> tails;
  std::vector<size_t> before(positions.size(), SIZE_MAX);
  for (size_t i = 0; i < positions.size(); ++i) {
    auto at =
        std::ranges::lower_bound(tails, positions[i], {}, [&](size_t t) { return positions[t]; });
    if (at != tails.begin()) before[i] = *(at - 1);
    if (at == tails.end()) {
      tails.push_back(i);
    } else {
      *at = i;
    }
  }
  std::vector<bool> kept(positions.size());
  for (size_t i = tails.empty() ? SIZE_MAX : tails.back(); i != SIZE_MAX; i = before[i])
    kept[i] = true;
  return kept;
}

class GraphDiff {
 public:
  GraphDiff(const Module& a, const Graph& ga, const Module& b, const Graph& gb,
            std::vector<Change>& changes)
      : a_(a),
        b_(b),
        ga_(ga),
        gb_(gb),
        changes_(changes),
        match_(ga.node_count()),
        matched_(gb.node_count()) {}

  void Run() {
    CompareLists(Inputs(a_, ga_), Inputs(b_, gb_));
    CompareLists(Outputs(a_, ga_), Outputs(b_, gb_));
    MatchByName();
    MatchByContent();
    ReportNodes();
    ReportMoves();
  }

 private:
  using Lines = std::vector<std::pair<std::string, std::string>>;

  void Add(ChangeKind kind, std::string before, std::string after) {
    changes_.push_back({kind, ga_.name(), std::move(before), std::move(after), 0, 0, {}});
  }

  static Lines Inputs(const Module& module, const Graph& graph) {
    Lines lines;
    for (const Input& input : graph.inputs()) {
      lines.emplace_back(graph.name(input.value), "input " + PrintInput(module, graph, input));
    }
    return lines;
  }

  // An output is identified by its role; without a role, by its value.
  static Lines Outputs(const Module& module, const Graph& graph) {
    Lines lines;
    for (const Output& output : graph.outputs()) {
      std::string_view label =
          output.target ? graph.name(output.target) : std::string_view(output.label);
      std::string key = output.role == OutputRole::kPlain
                            ? std::string(graph.name(output.value))
                            : fmt::format("{} {} {}", Name(output.role), output.index, label);
      lines.emplace_back(std::move(key), "output " + PrintOutput(module, graph, output));
    }
    return lines;
  }

  void CompareLists(const Lines& before, const Lines& after) {
    std::multimap<std::string_view, std::string_view> rest;
    for (const auto& [key, line] : after) rest.emplace(key, line);
    for (const auto& [key, line] : before) {
      auto found = rest.find(key);
      if (found == rest.end()) {
        Add(ChangeKind::kVanished, line, "");
        continue;
      }
      if (found->second != line) Add(ChangeKind::kChanged, line, std::string(found->second));
      rest.erase(found);
    }
    for (const auto& [key, line] : rest) Add(ChangeKind::kAppeared, "", std::string(line));
  }

  void Match(NodeId a, NodeId b) {
    match_[a] = b;
    matched_[b] = true;
  }

  void MatchByName() {
    for (NodeId a : ga_.nodes()) {
      if (ga_[a].result_count == 0) continue;
      ValueId twin = gb_.FindValue(ga_.name(ga_[a].first_result));
      NodeId b = twin ? gb_[twin].producer : NodeId();
      if (b && gb_[b].first_result == twin && !matched_[b]) Match(a, b);
    }
  }

  // A line without its result names. It includes operand names, so a chain whose values were all
  // renamed shows as replaced.
  static std::string Content(const Module& module, const Graph& graph, NodeId id) {
    std::string line = PrintNode(module, graph, id);
    size_t equals = graph[id].result_count > 0 ? line.find(" = ") : std::string::npos;
    return equals == std::string::npos ? line : line.substr(equals);
  }

  void MatchByContent() {
    // Equal nodes, the earliest last.
    std::unordered_map<std::string, std::vector<NodeId>> open;
    for (size_t i = gb_.node_count(); i-- > 0;) {
      if (!matched_[NodeId(i)]) open[Content(b_, gb_, NodeId(i))].push_back(NodeId(i));
    }
    for (NodeId a : ga_.nodes()) {
      if (match_[a] || open.empty()) continue;
      auto found = open.find(Content(a_, ga_, a));
      if (found == open.end() || found->second.empty()) continue;
      Match(a, found->second.back());
      found->second.pop_back();
    }
  }

  void ReportNodes() {
    for (NodeId a : ga_.nodes()) {
      std::string before = Line(a_, ga_, a);
      if (!match_[a]) {
        Add(ChangeKind::kVanished, std::move(before), "");
        continue;
      }
      std::string after = Line(b_, gb_, match_[a]);
      if (before == after) continue;
      bool renamed = Content(a_, ga_, a) == Content(b_, gb_, match_[a]) &&
                     ga_[a].phase == gb_[match_[a]].phase;
      Add(renamed ? ChangeKind::kRenamed : ChangeKind::kChanged, std::move(before),
          std::move(after));
    }
    for (NodeId b : gb_.nodes()) {
      if (!matched_[b]) Add(ChangeKind::kAppeared, "", Line(b_, gb_, b));
    }
  }

  static std::string Line(const Module& module, const Graph& graph, NodeId id) {
    return fmt::format("{}: {}", Name(graph[id].phase), PrintNode(module, graph, id));
  }

  void ReportMoves() {
    std::vector<NodeId> both;
    std::vector<uint32_t> positions;
    for (NodeId a : ga_.nodes()) {
      if (!match_[a]) continue;
      both.push_back(a);
      positions.push_back(match_[a].index());
    }
    std::vector<bool> kept = LongestIncreasing(positions);
    for (size_t i = 0; i < both.size(); ++i) {
      if (kept[i]) continue;
      NodeId b = match_[both[i]];
      Change change{ChangeKind::kMoved, ga_.name(), Line(a_, ga_, both[i]), "", both[i].index(),
                    b.index(),          {}};
      if (b.index() > 0) {
        NodeId previous(b.index() - 1);
        change.follows = gb_[previous].result_count > 0
                             ? "%" + std::string(gb_.name(gb_[previous].first_result))
                             : std::string(gb_.op(previous).name());
      }
      changes_.push_back(std::move(change));
    }
  }

  const Module& a_;
  const Module& b_;
  const Graph& ga_;
  const Graph& gb_;
  std::vector<Change>& changes_;
  Table<NodeId, NodeId> match_;
  Table<NodeId, bool> matched_;
};

}  // namespace

std::string_view Name(ChangeKind kind) { return kKinds[static_cast<size_t>(kind)]; }

std::vector<Change> Diff(const Module& a, const Module& b) {
  std::vector<Change> changes;
  auto header = [](const Module& m) {
    return fmt::format("heddle 1 {}, mesh [{}]", Name(m.view), Format(m.mesh));
  };
  if (header(a) != header(b))
    changes.push_back({ChangeKind::kChanged, "", header(a), header(b), 0, 0, {}});
  std::unordered_map<std::string_view, const Graph*> in_a;
  std::unordered_map<std::string_view, const Graph*> in_b;
  for (const Graph& graph : a.graphs) in_a.emplace(graph.name(), &graph);
  for (const Graph& graph : b.graphs) in_b.emplace(graph.name(), &graph);
  for (const Graph& graph : a.graphs) {
    auto twin = in_b.find(graph.name());
    if (twin == in_b.end()) {
      changes.push_back(
          {ChangeKind::kVanished, graph.name(), "graph @" + graph.name(), "", 0, 0, {}});
    } else {
      GraphDiff(a, graph, b, *twin->second, changes).Run();
    }
  }
  for (const Graph& graph : b.graphs) {
    if (!in_a.contains(graph.name())) {
      changes.push_back(
          {ChangeKind::kAppeared, graph.name(), "", "graph @" + graph.name(), 0, 0, {}});
    }
  }
  return changes;
}

std::string Format(const std::vector<Change>& changes) {
  std::string out;
  size_t counts[std::size(kKinds)] = {};
  for (const Change& change : changes) {
    ++counts[static_cast<size_t>(change.kind)];
    switch (change.kind) {
      case ChangeKind::kAppeared: out += fmt::format("+ {}\n", change.after); break;
      case ChangeKind::kVanished: out += fmt::format("- {}\n", change.before); break;
      case ChangeKind::kChanged:
      case ChangeKind::kRenamed:
        out += fmt::format("< {}\n> {}\n", change.before, change.after);
        break;
      case ChangeKind::kMoved:
        out +=
            fmt::format("^ {}\n  moved from {} to {}, {}\n", change.before, change.from, change.to,
                        change.follows.empty() ? "the start" : "behind " + change.follows);
    }
  }
  if (changes.empty()) return out;
  for (size_t i = 0; i < std::size(kKinds); ++i)
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", counts[i], kKinds[i]);
  out += '\n';
  return out;
}

}  // namespace heddle
