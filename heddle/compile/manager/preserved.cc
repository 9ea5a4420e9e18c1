#include "heddle/compile/manager/preserved.h"

#include <algorithm>
#include <map>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ir/random_order.h"

namespace heddle::compile {
namespace {

// The roles of a module, as sorted text. `units`: whether to include the units of parameters.
std::vector<std::string> Roles(const Module& module, bool units) {
  std::vector<std::string> roles;
  for (const Graph& graph : module.graphs) {
    for (const Input& input : graph.inputs()) {
      roles.push_back(fmt::format("@{} input {} {} \"{}\" unit \"{}\"", graph.name(),
                                  Name(input.role), input.index, input.label,
                                  units ? std::string_view(input.unit) : std::string_view()));
    }
    for (const Output& output : graph.outputs()) {
      std::string_view target = output.target ? graph.name(output.target) : std::string_view();
      roles.push_back(fmt::format("@{} output {} {} \"{}\" {}", graph.name(), Name(output.role),
                                  output.index, output.label, target));
    }
  }
  std::ranges::sort(roles);
  return roles;
}

Status CheckRoles(const PassDef& pass, const Module& before, const Module& after) {
  std::vector<std::string> old_roles = Roles(before, !pass.sets_units);
  std::vector<std::string> new_roles = Roles(after, !pass.sets_units);
  if (old_roles == new_roles) return Done{};
  std::vector<std::string> lost;
  std::ranges::set_difference(old_roles, new_roles, std::back_inserter(lost));
  return Error(Diag::kLostRole, "{} lost {} and left {} roles of {}", pass.name,
               lost.empty() ? "no role" : lost[0], new_roles.size(), old_roles.size());
}

Status CheckDraws(const PassDef& pass, const Module& before, const Module& after) {
  std::vector<std::string> old_draws = RandomOrder(before);
  std::vector<std::string> new_draws = RandomOrder(after);
  if (old_draws == new_draws) return Done{};
  auto [was, is] = std::ranges::mismatch(old_draws, new_draws);
  return Error(Diag::kRandomOrder,
               "{} changed the sequence of random and unknown ops: number {} was {}, is {}; {} "
               "before, {} after",
               pass.name, was - old_draws.begin() + 1, was == old_draws.end() ? "none" : *was,
               is == new_draws.end() ? "none" : *is, old_draws.size(), new_draws.size());
}

// The node that launches the collective whose handle has this name, or none.
NodeId FindLaunch(const Graph& graph, std::string_view name) {
  ValueId handle = graph.FindValue(name);
  NodeId id = handle ? graph[handle].producer : NodeId();
  return id && IsLaunch(graph, id) ? id : NodeId();
}

Status CheckLaunches(const PassDef& pass, const Mesh& mesh, const Graph& before,
                     const Graph& after) {
  // Keyed by communicator: the earlier position of its last launch so far.
  std::map<std::pair<uint64_t, uint8_t>, NodeId> last;
  for (NodeId id : after.nodes()) {
    if (!IsLaunch(after, id)) continue;
    NodeId was = FindLaunch(before, after.name(after[id].first_result));
    if (!was) continue;
    const AttrValue* over = after.attrs(id).Find("over");
    Axes axes = over != nullptr ? std::get<Axes>(*over) : Axes();
    NodeId& previous = last[{axes.bits(), after[id].stream}];
    if (previous && was < previous) {
      return Error(
          Diag::kLaunchOrder,
          "{} launches %{} after %{} over [{}] on stream {}; before the pass it was launched first",
          pass.name, after.name(after[id].first_result), before.name(before[previous].first_result),
          Format(mesh, axes), after[id].stream);
    }
    previous = was;
  }
  return Done{};
}

}  // namespace

Status CheckPreserved(const PassDef& pass, const Module& before, const Module& after) {
  if (!pass.changes_signature) HEDDLE_RETURN_IF_ERROR(CheckRoles(pass, before, after));
  HEDDLE_RETURN_IF_ERROR(CheckDraws(pass, before, after));
  if (pass.reorders_launches) return Done{};
  std::map<std::string_view, const Graph*> old_graphs;
  for (const Graph& graph : before.graphs) old_graphs.emplace(graph.name(), &graph);
  for (const Graph& graph : after.graphs) {
    auto same = old_graphs.find(graph.name());
    if (same != old_graphs.end())
      HEDDLE_RETURN_IF_ERROR(CheckLaunches(pass, after.mesh, *same->second, graph));
  }
  return Done{};
}

}  // namespace heddle::compile
