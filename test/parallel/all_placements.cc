#include "test/parallel/all_placements.h"

#include <algorithm>
#include <map>
#include <set>

namespace heddle {
namespace {

// Axes of each dimension, then the pending axes in the order of the mesh, then the unused axes.
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

// Moves `list` from `from` to the end of `to`.
State Moved(State state, size_t from, size_t to, const std::vector<AxisId>& list) {
  for (AxisId axis : list) {
    std::erase(state[from], axis);
    state[to].push_back(axis);
  }
  std::ranges::sort(state.back());
  return state;
}

// Returns all ordered choices from a list, except the empty one.
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

int64_t Elements(const State& state, const Dims& dims, const Mesh& mesh) {
  return LargestPart(PlacementOf(state), dims, mesh);
}
// Returns the elements that a rank with `elements` sends to the others of a group.
int64_t Sent(int64_t elements, const std::vector<AxisId>& over, const Mesh& mesh) {
  int64_t ranks = 1;
  for (AxisId axis : over) ranks *= mesh[axis].size;
  return elements - (elements + ranks - 1) / ranks;
}

struct Move {
  State to;
  int64_t moved;
};

// Returns the states that one collective can make from a state.
std::vector<Move> Collectives(const State& state, const Dims& dims, const Mesh& mesh) {
  size_t rank = dims.size();
  int64_t have = Elements(state, dims, mesh);
  std::vector<Move> next;
  for (size_t d = 0; d < rank; ++d) {
    for (size_t n = 1; n <= state[d].size(); ++n) {
      std::vector<AxisId> last(state[d].end() - static_cast<ptrdiff_t>(n), state[d].end());
      State gathered = Moved(state, d, rank + 1, last);
      next.push_back({gathered, Elements(gathered, dims, mesh) - have});
      for (size_t e = 0; e < rank; ++e) {
        if (e != d) next.push_back({Moved(state, d, e, last), Sent(have, last, mesh)});
      }
    }
  }
  std::vector<std::vector<AxisId>> lists;
  Choices(state[rank], {}, lists);
  for (const std::vector<AxisId>& list : lists) {
    next.push_back({Moved(state, rank, rank + 1, list), 2 * Sent(have, list, mesh)});
    for (size_t e = 0; e < rank; ++e) {
      State scattered = Moved(state, rank, e, list);
      next.push_back({scattered, have - Elements(scattered, dims, mesh)});
    }
  }
  return next;
}

std::vector<State> Slices(const State& state) {
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
    // The order of axes matters within a dimension only.
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

int64_t LargestPart(const Placement& placement, const Dims& dims, const Mesh& mesh) {
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d)
    elements *= PartAt(dims[d], placement.split(d), mesh, 0).size;
  return elements;
}

std::vector<std::optional<Distance>> Distances(const std::vector<Placement>& placements,
                                               size_t from, const Dims& dims, const Mesh& mesh) {
  std::map<State, Distance> nearest;
  std::set<std::pair<Distance, State>> open{{{}, StateOf(placements[from], dims.size(), mesh)}};
  while (!open.empty()) {
    auto [distance, state] = *open.begin();
    open.erase(open.begin());
    if (!nearest.emplace(state, distance).second) continue;
    for (State& next : Slices(state)) open.emplace(distance, std::move(next));
    for (Move& move : Collectives(state, dims, mesh))
      open.emplace(Distance{distance.collectives + 1, distance.moved + move.moved},
                   std::move(move.to));
  }
  std::vector<std::optional<Distance>> out;
  for (const Placement& placement : placements) {
    auto found = nearest.find(StateOf(placement, dims.size(), mesh));
    out.push_back(found == nearest.end() ? std::nullopt : std::optional(found->second));
  }
  return out;
}

}  // namespace heddle
