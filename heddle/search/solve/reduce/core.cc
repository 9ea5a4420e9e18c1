#include "heddle/search/solve/reduce/core.h"

#include <algorithm>
#include <tuple>

namespace heddle::search {
namespace {

uint64_t PairKey(uint32_t a, uint32_t b) {
  return a < b ? uint64_t{a} << 32 | b : uint64_t{b} << 32 | a;
}

void Unlink(Core& core, uint32_t variable, uint32_t at) {
  std::vector<uint32_t>& list = core.variables[variable].edges;
  list[at] = list.back();
  list.pop_back();
  if (at == list.size()) return;
  CoreEdge& moved = core.edges[list[at]];
  (moved.u == variable ? moved.at_u : moved.at_v) = at;
}

void Pick(std::vector<double>& values, const std::vector<uint32_t>& which) {
  for (size_t i = 0; i < which.size(); ++i) values[i] = values[which[i]];
  values.resize(which.size());
}

// Returns the best choice of an eliminated variable, given its neighbors' choices.
uint32_t BestChoice(const EliminatedVariable& gone, const std::vector<uint32_t>& x) {
  std::vector<double> cost = gone.cost;
  for (const EliminatedVariable::Neighbour& n : gone.neighbours) {
    size_t columns = n.cost.size() / cost.size();
    for (size_t k = 0; k < cost.size(); ++k) cost[k] += n.cost[k * columns + x[n.variable]];
  }
  return static_cast<uint32_t>(std::ranges::min_element(cost) - cost.begin());
}

}  // namespace

std::vector<double> Transpose(const std::vector<double>& matrix, size_t rows, size_t columns) {
  std::vector<double> turned(matrix.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) turned[c * rows + r] = matrix[r * columns + c];
  }
  return turned;
}

void Core::AddEdge(uint32_t u, uint32_t v, std::vector<double> cost) {
  variables[u].unchecked = true;
  variables[v].unchecked = true;
  auto [at, is_new] = edge_of_.try_emplace(PairKey(u, v), static_cast<uint32_t>(edges.size()));
  if (!is_new) {
    CoreEdge& edge = edges[at->second];
    if (edge.u != u) cost = Transpose(cost, variables[u].size(), variables[v].size());
    for (size_t i = 0; i < cost.size(); ++i) edge.cost[i] += cost[i];
    edge.unchecked = true;
    return;
  }
  CoreEdge edge;
  edge.u = u;
  edge.v = v;
  edge.at_u = static_cast<uint32_t>(variables[u].edges.size());
  edge.at_v = static_cast<uint32_t>(variables[v].edges.size());
  edge.cost = std::move(cost);
  variables[u].edges.push_back(at->second);
  variables[v].edges.push_back(at->second);
  edges.push_back(std::move(edge));
}

std::vector<double> Core::TakeEdge(uint32_t edge, uint32_t variable) {
  CoreEdge& e = edges[edge];
  edge_of_.erase(PairKey(e.u, e.v));
  Unlink(*this, e.u, e.at_u);
  Unlink(*this, e.v, e.at_v);
  std::vector<double> cost = std::move(e.cost);
  e.cost = {};
  if (e.u != variable) cost = Transpose(cost, variables[e.u].size(), variables[e.v].size());
  return cost;
}

void Core::Keep(std::span<const uint8_t> keep) {
  std::vector<std::vector<uint32_t>> kept(variables.size());
  std::vector<bool> changed(variables.size());
  size_t first = 0;
  for (size_t v = 0; v < variables.size(); ++v) {
    uint32_t size = variables[v].size();
    for (uint32_t k = 0; k < size; ++k) {
      if (keep[first + k] != 0) kept[v].push_back(k);
    }
    changed[v] = kept[v].size() != size;
    HEDDLE_CHECK(size == 0 || !kept[v].empty(), "a variable loses its last choice");
    first += size;
  }
  for (CoreEdge& edge : edges) {
    if (edge.gone() || (!changed[edge.u] && !changed[edge.v])) continue;
    size_t columns = variables[edge.v].size();
    size_t to = 0;
    for (uint32_t r : kept[edge.u]) {
      for (uint32_t c : kept[edge.v]) edge.cost[to++] = edge.cost[r * columns + c];
    }
    edge.cost.resize(to);
    edge.unchecked = true;
    variables[edge.u].unchecked = true;
    variables[edge.v].unchecked = true;
  }
  for (SharedMove& move : moves) move = KeepChoices(std::move(move), kept);
  for (uint32_t v = 0; v < variables.size(); ++v) {
    if (!changed[v]) continue;
    Pick(variables[v].cost, kept[v]);
    for (CoreTerm& term : variables[v].terms) Pick(term.amount, kept[v]);
    variables[v].unchecked = true;
    trail.push_back(KeptChoices{v, std::move(kept[v])});
  }
}

void Core::AddTerms(CoreVariable& to, const std::vector<CoreTerm>& terms,
                    std::span<const uint32_t> choice) {
  for (const CoreTerm& term : terms) {
    auto at = std::ranges::lower_bound(to.terms, term.row, {}, &CoreTerm::row);
    if (at == to.terms.end() || at->row != term.row)
      at = to.terms.insert(at, {term.row, std::vector<double>(choice.size())});
    for (size_t k = 0; k < choice.size(); ++k) at->amount[k] += term.amount[choice[k]];
  }
}

std::vector<EliminatedVariable::Neighbour> Core::TakeEdges(uint32_t variable) {
  std::vector<EliminatedVariable::Neighbour> taken;
  while (!variables[variable].edges.empty()) {
    uint32_t e = variables[variable].edges.back();
    uint32_t other = Other(e, variable);
    taken.push_back({other, TakeEdge(e, variable)});
  }
  return taken;
}

void Core::PutEdges(uint32_t variable, const std::vector<EliminatedVariable::Neighbour>& taken,
                    std::span<const uint32_t> choice) {
  for (const EliminatedVariable::Neighbour& n : taken) {
    size_t columns = variables[n.variable].size();
    std::vector<double> cost;
    cost.reserve(choice.size() * columns);
    for (uint32_t k : choice) {
      const double* row = n.cost.data() + k * columns;
      cost.insert(cost.end(), row, row + columns);
    }
    AddEdge(variable, n.variable, std::move(cost));
  }
}

void Core::Follow(uint32_t leader, uint32_t follower, std::vector<uint32_t> choice) {
  CoreVariable& gone = variables[follower];
  for (size_t k = 0; k < choice.size(); ++k) variables[leader].cost[k] += gone.cost[choice[k]];
  AddTerms(variables[leader], gone.terms, choice);
  PutEdges(leader, TakeEdges(follower), choice);
  gone = {};
  trail.push_back(FollowingVariable{follower, leader, std::move(choice)});
}

void Core::Join(uint32_t a, uint32_t b) {
  auto edge = edge_of_.find(PairKey(a, b));
  std::vector<double> between(size_t{variables[a].size()} * variables[b].size());
  if (edge != edge_of_.end()) between = TakeEdge(edge->second, a);
  JoinedVariables step{a, b, {}};
  CoreVariable joined;
  std::vector<uint32_t> choice_a;
  std::vector<uint32_t> choice_b;
  for (uint32_t i = 0; i < variables[a].size(); ++i) {
    for (uint32_t j = 0; j < variables[b].size(); ++j) {
      double both = between[size_t{i} * variables[b].size() + j];
      if (both == kForbidden) continue;
      step.pairs.emplace_back(i, j);
      choice_a.push_back(i);
      choice_b.push_back(j);
      joined.cost.push_back(variables[a].cost[i] + variables[b].cost[j] + both);
    }
  }
  AddTerms(joined, variables[a].terms, choice_a);
  AddTerms(joined, variables[b].terms, choice_b);
  auto edges_of_a = TakeEdges(a);
  auto edges_of_b = TakeEdges(b);
  variables[a] = std::move(joined);
  variables[b] = {};
  PutEdges(a, edges_of_a, choice_a);
  PutEdges(a, edges_of_b, choice_b);
  trail.push_back(std::move(step));
}

Core Core::Copy(std::vector<uint32_t>& from) const {
  Core copy;
  copy.rows = rows;
  copy.constant = constant;
  std::vector<uint32_t> number(variables.size());
  from.clear();
  for (uint32_t v = 0; v < variables.size(); ++v) {
    if (variables[v].gone()) continue;
    number[v] = static_cast<uint32_t>(from.size());
    from.push_back(v);
    copy.variables.push_back({variables[v].cost, {}, variables[v].terms, false});
  }
  for (const CoreEdge& edge : edges) {
    if (!edge.gone()) copy.AddEdge(number[edge.u], number[edge.v], edge.cost);
  }
  return copy;
}

size_t Core::VariableCount() const {
  return static_cast<size_t>(
      std::ranges::count_if(variables, [](const CoreVariable& v) { return !v.gone(); }));
}

size_t Core::ChoiceCount() const {
  size_t count = 0;
  for (const CoreVariable& variable : variables) count += variable.size();
  return count;
}

size_t Core::EntryCount() const {
  size_t count = 0;
  for (const CoreEdge& edge : edges) count += edge.cost.size();
  return count;
}

bool Core::HasTerms() const {
  return std::ranges::any_of(variables, [](const CoreVariable& v) { return !v.terms.empty(); });
}

double Core::Cost(const std::vector<uint32_t>& x) const {
  double cost = constant;
  for (size_t v = 0; v < variables.size(); ++v) {
    if (!variables[v].gone()) cost += variables[v].cost[x[v]];
  }
  for (const CoreEdge& edge : edges) {
    if (!edge.gone()) cost += edge.cost[size_t{x[edge.u]} * variables[edge.v].size() + x[edge.v]];
  }
  for (const SharedMove& move : moves) cost += move.Cost(x);
  return cost;
}

void Core::Unwind(std::vector<uint32_t>& x) const {
  for (size_t i = trail.size(); i-- > 0;) {
    if (const auto* kept = std::get_if<KeptChoices>(&trail[i])) {
      x[kept->variable] = kept->kept[x[kept->variable]];
    } else if (const auto* following = std::get_if<FollowingVariable>(&trail[i])) {
      x[following->variable] = following->choice[x[following->leader]];
    } else if (const auto* joined = std::get_if<JoinedVariables>(&trail[i])) {
      std::tie(x[joined->variable], x[joined->other]) = joined->pairs[x[joined->variable]];
    } else {
      const auto& gone = std::get<EliminatedVariable>(trail[i]);
      x[gone.variable] = BestChoice(gone, x);
    }
  }
}

ChoiceSets Core::Kept() const {
  ChoiceSets all(variables.size());
  for (size_t v = 0; v < variables.size(); ++v) {
    for (uint32_t k = 0; k < variables[v].size(); ++k) all[v].push_back(k);
  }
  for (size_t i = trail.size(); i-- > 0;) {
    const KeptChoices& step = std::get<KeptChoices>(trail[i]);
    all[step.variable] = Select(step.kept, all[step.variable]);
  }
  return all;
}

}  // namespace heddle::search
