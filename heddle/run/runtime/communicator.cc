#include "heddle/run/runtime/communicator.h"

#include <algorithm>
#include <map>

#include "heddle/core/ops/collectives.h"

namespace heddle::run {

const std::vector<int64_t>& Communicator::GroupOf(int64_t rank) const {
  auto at = std::ranges::find_if(groups, [&](const std::vector<int64_t>& group) {
    return std::ranges::find(group, rank) != group.end();
  });
  HEDDLE_CHECK(at != groups.end(), "a rank does not belong to any group of a communicator");
  return *at;
}

Communicators::Communicators(const Mesh& mesh, const Graph& graph) : of_(graph.node_count()) {
  std::map<std::pair<Axes, uint8_t>, CommunicatorId> known;
  for (NodeId node : graph.nodes()) {
    if (!CollectiveKindOf(graph[node].op)) continue;
    Axes over = std::get<Axes>(*graph.attrs(node).Find("over"));
    auto [at, added] = known.try_emplace({over, graph[node].stream});
    if (added) at->second = all_.Add({over, graph[node].stream, Groups(mesh, over)});
    of_[node] = at->second;
  }
}

std::string Format(const Mesh& mesh, const Communicator& communicator) {
  std::string text = fmt::format("[{}]", Format(mesh, communicator.over));
  if (communicator.stream != 0) text += fmt::format(" stream {}", communicator.stream);
  return text;
}

}  // namespace heddle::run
