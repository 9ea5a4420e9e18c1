#include "heddle/search/placement/repeat_groups.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "heddle/compile/plan/patterns.h"

namespace heddle::search {
namespace {

// Groups by pattern, in the order of the first members. A group is split up if its members are of
// different kinds, or if its pattern also matches other names.
template <typename Key, typename Name, typename SameKind>
class Grouping {
 public:
  Grouping(Name name, SameKind same) : name_(name), same_(same) {}

  void Add(uint32_t member, const Key& key) {
    auto [at, added] = index_.try_emplace({compile::AsPattern(name_(member)), key}, groups_.size());
    if (added) groups_.push_back({at->first.first, {}});
    groups_[at->second].members.push_back(member);
    members_[key].push_back(member);
    keys_[member] = key;
  }

  std::vector<RepeatGroup> Finish() {
    std::vector<RepeatGroup> out;
    for (RepeatGroup& group : groups_) {
      bool same = std::ranges::all_of(group.members,
                                      [&](uint32_t m) { return same_(m, group.members[0]); });
      if (same && MeansNoOthers(group)) {
        if (group.members.size() == 1) group.pattern = name_(group.members[0]);
        out.push_back(std::move(group));
        continue;
      }
      for (uint32_t member : group.members) out.push_back({std::string(name_(member)), {member}});
    }
    std::ranges::sort(out, {}, [](const RepeatGroup& group) { return group.members[0]; });
    return out;
  }

 private:
  bool MeansNoOthers(const RepeatGroup& group) const {
    const std::vector<uint32_t>& all = members_.at(keys_.at(group.members[0]));
    auto matches = [&](uint32_t m) { return compile::MatchesPattern(group.pattern, name_(m)); };
    return std::ranges::count_if(all, matches) == static_cast<ptrdiff_t>(group.members.size());
  }

  Name name_;
  SameKind same_;
  std::vector<RepeatGroup> groups_;
  std::map<std::pair<std::string, Key>, size_t> index_;
  std::map<Key, std::vector<uint32_t>> members_;
  std::map<uint32_t, Key> keys_;
};

}  // namespace

std::vector<RepeatGroup> GroupRepeatedParams(const Graph& graph) {
  auto name = [&](uint32_t i) -> std::string_view { return graph.inputs()[i].label; };
  auto same = [&](uint32_t a, uint32_t b) {
    return graph.type(graph.inputs()[a].value) == graph.type(graph.inputs()[b].value);
  };
  Grouping<int, decltype(name), decltype(same)> grouping(name, same);
  for (uint32_t i = 0; i < graph.inputs().size(); ++i) {
    if (graph.inputs()[i].role == InputRole::kParam) grouping.Add(i, 0);
  }
  return grouping.Finish();
}

std::vector<RepeatGroup> GroupRepeatedNodes(const Graph& graph) {
  auto name = [&](uint32_t n) { return graph.scope(NodeId(n)); };
  auto same = [&](uint32_t x, uint32_t y) {
    NodeId a(x);
    NodeId b(y);
    auto type = [&](ValueId v) { return v ? graph.type(v) : TypeId(); };
    return graph[a].attrs == graph[b].attrs &&
           std::ranges::equal(graph.operands(a), graph.operands(b), {}, type, type) &&
           std::ranges::equal(graph.results(a), graph.results(b), {}, type, type);
  };
  using Key = std::tuple<OpId, Phase, uint32_t>;
  Grouping<Key, decltype(name), decltype(same)> grouping(name, same);
  std::vector<uint32_t> numbers = compile::NodeNumbers(graph);
  for (NodeId node : graph.nodes())
    grouping.Add(node.index(), {graph[node].op, graph[node].phase, numbers[node.index()]});
  return grouping.Finish();
}

compile::Plan Compacted(compile::Plan plan, const Graph& graph) {
  std::map<std::string_view, const compile::PlanParam*> by_name;
  for (const compile::PlanParam& param : plan.params) by_name[param.pattern] = &param;
  std::vector<compile::PlanParam> params;
  for (const RepeatGroup& group : GroupRepeatedParams(graph)) {
    auto of = [&](uint32_t i) {
      compile::PlanParam param = *by_name.at(graph.inputs()[i].label);
      if (param.unit == graph.inputs()[i].unit) param.unit.clear();
      return param;
    };
    compile::PlanParam first = of(group.members[0]);
    bool same = std::ranges::all_of(group.members, [&](uint32_t i) {
      compile::PlanParam param = of(i);
      return param.store == first.store && param.compute == first.compute &&
             param.unit == first.unit;
    });
    if (same) {
      first.pattern = group.pattern;
      params.push_back(std::move(first));
      continue;
    }
    for (uint32_t i : group.members) params.push_back(of(i));
  }
  plan.params = std::move(params);
  return plan;
}

}  // namespace heddle::search
