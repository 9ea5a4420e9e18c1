// Shared moves as variables and edges.
#include <algorithm>

#include "heddle/search/solve/reduce/core.h"

namespace heddle::search {
namespace {

// A place of the tensor, and the placements that it is copied to for all readers.
struct Copies {
  uint32_t place = 0;
  std::vector<uint32_t> made;
};

// Returns the largest possible number of placements that have two readers each.
size_t MostShared(const SharedMove& move) {
  size_t wants = 0;
  for (const SharedReader& reader : move.readers) wants += reader.most();
  return wants / 2;
}

// Returns the matrix entries for each choice of the copies.
size_t WidthOf(const SharedMove& move) {
  size_t width = move.sources.size();
  for (const SharedReader& reader : move.readers) width += reader.choices();
  return width;
}

// Lists all subsets of `from` with at most `most` elements, in order. Returns false if there are
// more than `limit`.
bool ListSets(const std::vector<uint32_t>& from, size_t most, size_t limit,
              std::vector<std::vector<uint32_t>>& out) {
  if (limit == 0) return false;
  out.push_back({});
  for (size_t begin = 0, size = 0; size < most; ++size) {
    size_t end = out.size();
    for (; begin < end; ++begin) {
      for (uint32_t to : from) {
        if (!out[begin].empty() && to <= out[begin].back()) continue;
        if (out.size() >= limit) return false;
        out.push_back(out[begin]);
        out.back().push_back(to);
      }
    }
  }
  return true;
}

// Empty if there are more than `most`.
std::vector<Copies> ListCopies(const SharedMove& move, size_t most) {
  std::vector<size_t> wanted_by = WantedBy(move.readers, move.prices->width);
  std::vector<bool> possible = PlacesOf(move);
  std::vector<Copies> out;
  for (uint32_t place = 0; place < possible.size(); ++place) {
    if (!possible[place]) continue;
    const double* prices = move.prices->Row(place);
    std::vector<uint32_t> worth;
    for (uint32_t to = 0; to < wanted_by.size(); ++to) {
      if (wanted_by[to] > 1 && prices[to] > 0 && prices[to] != kForbidden) worth.push_back(to);
    }
    std::vector<std::vector<uint32_t>> sets;
    if (!ListSets(worth, MostShared(move), most - out.size(), sets)) return {};
    for (std::vector<uint32_t>& set : sets) out.push_back({place, std::move(set)});
  }
  return out;
}

template <typename CostOf>
void AddPairs(Core& core, uint32_t u, uint32_t v, CostOf cost_of) {
  std::vector<double> cost;
  cost.reserve(size_t{core.variables[u].size()} * core.variables[v].size());
  for (uint32_t r = 0; r < core.variables[u].size(); ++r) {
    for (uint32_t c = 0; c < core.variables[v].size(); ++c) cost.push_back(cost_of(r, c));
  }
  core.AddEdge(u, v, std::move(cost));
}

void AddAlone(Core& core, const SharedMove& move, const SharedReader& reader) {
  std::vector<double> pays = PricesAlone(move, reader);
  auto cost_of = [&](uint32_t c, uint32_t r) {
    return pays[move.sources[c] * reader.choices() + r];
  };
  if (reader.variable() != move.from) return AddPairs(core, move.from, reader.variable(), cost_of);
  std::vector<double>& cost = core.variables[move.from].cost;
  for (uint32_t k = 0; k < cost.size(); ++k) cost[k] += cost_of(k, k);
}

void AddShared(Core& core, const SharedMove& move) {
  std::vector<Copies> choices = ListCopies(move, SIZE_MAX);
  auto copies = static_cast<uint32_t>(core.variables.size());
  std::vector<double>& costs = core.variables.emplace_back().cost;
  for (const Copies& choice : choices) {
    double& cost = costs.emplace_back();
    for (uint32_t to : choice.made) cost += (*move.prices)(choice.place, to);
  }
  AddPairs(core, move.from, copies, [&](uint32_t c, uint32_t k) {
    return move.sources[c] == choices[k].place ? 0 : kForbidden;
  });
  for (const SharedReader& reader : move.readers) {
    AddPairs(core, reader.variable(), copies, [&](uint32_t r, uint32_t k) {
      double sum = 0;
      for (uint32_t to : reader.Wants(r)) {
        if (std::ranges::find(choices[k].made, to) == choices[k].made.end())
          sum += (*move.prices)(choices[k].place, to);
      }
      return sum;
    });
  }
}

}  // namespace

bool CopiesFit(std::span<const SharedMove> moves, size_t most_entries) {
  for (const SharedMove& move : moves) {
    if (!move.is_shared()) continue;
    std::vector<Copies> choices = ListCopies(move, most_entries / WidthOf(move));
    if (choices.empty()) return false;
    most_entries -= WidthOf(move) * choices.size();
  }
  return true;
}

void AddCopies(Core& core) {
  std::vector<SharedMove> moves = std::move(core.moves);
  core.moves.clear();
  for (const SharedMove& move : moves) {
    if (move.is_shared()) {
      AddShared(core, move);
    } else {
      for (const SharedReader& reader : move.readers) AddAlone(core, move, reader);
    }
  }
}

}  // namespace heddle::search
