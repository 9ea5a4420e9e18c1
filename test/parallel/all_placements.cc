#include "test/parallel/all_placements.h"

#include <algorithm>
#include <deque>
#include <map>

namespace heddle {
namespace {

// Axes of each dimension; behind them the pending axes, in the order of the mesh, and then those that are not used.
using State = std::vector<std::vector<AxisId>>;

State StateOf(const Placement& placement, size_t rank, const Mesh& mesh) {
  State state(rank + 2);
  for (AxisId axis = 0; axis < mesh.axes().size(); ++axis) state[rank + 1].push_back(axis);
  auto use = [&](AxisId axis, size_t at) {
    state[at].push_back(axis);
    std::erase(state[rank + 1], axis);
  };
  for (size_t d = 0; d < rank; ++d) {
    for (AxisId axis : placement.split(d)) use(axis, d);
  }
  for (const Partial& partial : placement.partials) use(partial.axis, rank);
  return state;
}

Placement PlacementOf(const State& state) {
  Placement placement;
  for (size_t d = 0; d + 2 < state.size(); ++d) {
    Axes axes;
    for (AxisId axis : state[d]) axes.Add(axis);
    placement.splits.push_back(axes);
  }
  for (AxisId axis : state[state.size() - 2]) placement.partials.push_back({axis, ReduceOp::kSum});
  placement.Normalize();
  return placement;
}

// `list` leaves `from` and goes to the end of `to`.
State Moved(State state, size_t from, size_t to, const std::vector<AxisId>& list) {
  for (AxisId axis : list) {
    std::erase(state[from], axis);
    state[to].push_back(axis);
  }
  std::ranges::sort(state.back());
  return state;
}

// All ordered choices from a list, but the empty one.
void Choices(const std::vector<AxisId>& from, std::vector<AxisId> chosen,
             std::vector<std::vector<AxisId>>& out) {
  for (AxisId axis : from) {
    if (std::ranges::count(chosen, axis) > 0) continue;
    std::vector<AxisId> more = chosen;
    more.push_back(axis);
    out.push_back(more);
    Choices(from, more, out);
  }
}

// What one collective makes of a state.
std::vector<State> AfterCollective(const State& state) {
  size_t rank = state.size() - 2;
  std::vector<State> next;
  for (size_t d = 0; d < rank; ++d) {
    for (size_t n = 1; n <= state[d].size(); ++n) {
      std::vector<AxisId> last(state[d].end() - static_cast<ptrdiff_t>(n), state[d].end());
      // To another dimension; or behind them all, to the axes that are not used.
      for (size_t e = 0; e <= rank + 1; ++e) {
        if (e != d && e != rank) next.push_back(Moved(state, d, e, last));
      }
    }
  }
  std::vector<std::vector<AxisId>> lists;
  Choices(state[rank], {}, lists);
  for (const std::vector<AxisId>& list : lists) {
    for (size_t e = 0; e <= rank + 1; ++e) {
      if (e != rank) next.push_back(Moved(state, rank, e, list));
    }
  }
  return next;
}

std::vector<State> AfterSlice(const State& state) {
  size_t rank = state.size() - 2;
  std::vector<State> next;
  for (AxisId axis : state[rank + 1]) {
    for (size_t d = 0; d < rank; ++d) next.push_back(Moved(state, rank + 1, d, {axis}));
  }
  return next;
}

void AddPlacements(State state, AxisId axis, const Mesh& mesh, std::vector<Placement>& out) {
  if (axis == mesh.axes().size()) {
    out.push_back(PlacementOf(state));
    return;
  }
  size_t rank = state.size() - 2;
  for (size_t at = 0; at < state.size(); ++at) {
    // Among the axes of a dimension, at every place; elsewhere the order says nothing.
    size_t places = at < rank ? state[at].size() + 1 : 1;
    for (size_t place = 0; place < places; ++place) {
      State more = state;
      auto where = at < rank ? more[at].begin() + static_cast<ptrdiff_t>(place) : more[at].end();
      more[at].insert(where, axis);
      AddPlacements(more, axis + 1, mesh, out);
    }
  }
}

}  // namespace

std::vector<Placement> AllPlacements(size_t rank, const Mesh& mesh) {
  std::vector<Placement> out;
  AddPlacements(State(rank + 2), 0, mesh, out);
  return out;
}

std::vector<int> FewestCollectives(const std::vector<Placement>& placements, size_t from,
                                   size_t rank, const Mesh& mesh) {
  std::map<State, int> fewest;
  std::deque<std::pair<State, int>> open{{StateOf(placements[from], rank, mesh), 0}};
  // What is free goes to the front, so that states are taken up in the order of their collectives.
  while (!open.empty()) {
    auto [state, count] = open.front();
    open.pop_front();
    if (!fewest.emplace(state, count).second) continue;
    for (State& next : AfterSlice(state)) open.emplace_front(std::move(next), count);
    for (State& next : AfterCollective(state)) open.emplace_back(std::move(next), count + 1);
  }
  std::vector<int> out;
  for (const Placement& placement : placements) {
    auto found = fewest.find(StateOf(placement, rank, mesh));
    out.push_back(found == fewest.end() ? -1 : found->second);
  }
  return out;
}

}  // namespace heddle
