// Eliminates variables whose best choice follows from those of one or two others.
#include <algorithm>
#include <queue>

#include "heddle/search/solve/reduce/min_plus.h"
#include "heddle/search/solve/reduce/reduce.h"

namespace heddle::search {
namespace {

// Returns, for each choice of `u`, the only possible choice of `v`; empty if the edge is not one to
// one.
std::vector<uint32_t> OneToOne(const Core& core, const CoreEdge& edge) {
  uint32_t size = core.variables[edge.u].size();
  if (core.variables[edge.v].size() != size) return {};
  std::vector<uint32_t> to;
  std::vector<bool> taken(size);
  for (uint32_t r = 0; r < size; ++r) {
    uint32_t partner = size;
    for (uint32_t c = 0; c < size; ++c) {
      if (edge.cost[size_t{r} * size + c] == kForbidden) continue;
      if (partner != size) return {};
      partner = c;
    }
    if (partner == size || taken[partner]) return {};
    taken[partner] = true;
    to.push_back(partner);
  }
  return to;
}

class Eliminator {
 public:
  Eliminator(Core& core, const ReduceOptions& options, ReduceCounts& counts)
      : core_(core), options_(options), counts_(counts), entries_(core.EntryCount()) {
    most_entries_ = std::max(2 * entries_, size_t{1} << 20);
    for (uint32_t v = 0; v < core_.variables.size(); ++v) Offer(v);
  }

  bool Run() {
    bool any = false;
    while (!offers_.empty() && !options_.limit.Spent()) {
      auto [work, v] = offers_.top();
      offers_.pop();
      // The variable may have changed since it was queued.
      if (Work(v) != work) continue;
      bool bridge = core_.variables[v].size() > 1 && core_.variables[v].edges.size() == 2;
      if (bridge && entries_ + work / core_.variables[v].size() > most_entries_) continue;
      Eliminate(v);
      options_.limit.Spend(kStep + work);
      any = true;
    }
    return any;
  }

 private:
  using WorkAndVariable = std::pair<size_t, uint32_t>;
  static constexpr size_t kNever = SIZE_MAX;
  // Work of any elimination, however small.
  static constexpr size_t kStep = 256;

  // Returns the steps for eliminating a variable, or kNever.
  size_t Work(uint32_t v) const {
    const CoreVariable& variable = core_.variables[v];
    if (variable.gone() || !variable.terms.empty()) return kNever;
    if (variable.size() == 1) return 0;
    if (variable.edges.size() > 2) return kNever;
    size_t work = variable.size();
    for (uint32_t e : variable.edges) work *= core_.variables[core_.Other(e, v)].size();
    // With one neighbor, the work is that of reading the matrix.
    return variable.edges.size() < 2 || work <= options_.most_work ? work : kNever;
  }
  void Offer(uint32_t v) {
    size_t work = Work(v);
    if (work != kNever) offers_.push({work, v});
  }

  void Eliminate(uint32_t v) {
    EliminatedVariable gone{v, core_.variables[v].cost, core_.TakeEdges(v)};
    for (const auto& n : gone.neighbours) entries_ -= n.cost.size();
    if (gone.cost.size() == 1) {
      Fix(gone);
    } else if (gone.neighbours.empty()) {
      core_.constant += *std::ranges::min_element(gone.cost);
    } else if (gone.neighbours.size() == 1) {
      PassOn(gone);
    } else {
      Bridge(gone);
    }
    for (const auto& n : gone.neighbours) {
      core_.variables[n.variable].unchecked = true;
      Offer(n.variable);
    }
    core_.variables[v] = {};
    core_.trail.push_back(std::move(gone));
    ++counts_.eliminated;
  }

  // A single choice: its cost is a constant.
  void Fix(const EliminatedVariable& gone) {
    core_.constant += gone.cost[0];
    for (const auto& n : gone.neighbours) {
      std::vector<double>& cost = core_.variables[n.variable].cost;
      for (size_t k = 0; k < cost.size(); ++k) cost[k] += n.cost[k];
    }
  }

  // One neighbor: adds the best cost for each of its choices.
  void PassOn(const EliminatedVariable& gone) {
    const auto& [neighbour, matrix] = gone.neighbours[0];
    std::vector<double>& cost = core_.variables[neighbour].cost;
    std::vector<double> least(cost.size());
    MinOverRows(matrix.data(), gone.cost.size(), cost.size(), gone.cost.data(), least.data());
    for (size_t k = 0; k < cost.size(); ++k) cost[k] += least[k];
  }

  // Two neighbors: adds an edge between them.
  void Bridge(const EliminatedVariable& gone) {
    const auto& [a, a_cost] = gone.neighbours[0];
    const auto& [b, b_cost] = gone.neighbours[1];
    size_t rows = core_.variables[a].size();
    size_t columns = core_.variables[b].size();
    std::vector<double> least(rows * columns);
    MinOverInner(a_cost.data(), b_cost.data(), gone.cost.size(), rows, columns, gone.cost.data(),
                 least.data());
    entries_ += least.size();
    core_.AddEdge(a, b, std::move(least));
  }

  Core& core_;
  const ReduceOptions& options_;
  ReduceCounts& counts_;
  // Upper bound of the entries of all matrices, and its limit: bridges can be larger than the
  // matrices that they replace.
  size_t entries_;
  size_t most_entries_;
  std::priority_queue<WorkAndVariable, std::vector<WorkAndVariable>, std::greater<>> offers_;
};

}  // namespace

bool ContractEdges(Core& core, ReduceCounts& counts) {
  bool any = false;
  for (uint32_t e = 0; e < core.edges.size(); ++e) {
    const CoreEdge& edge = core.edges[e];
    if (edge.gone()) continue;
    std::vector<uint32_t> to = OneToOne(core, edge);
    if (to.empty()) continue;
    uint32_t u = edge.u;
    uint32_t v = edge.v;
    std::vector<double> cost = core.TakeEdge(e, u);
    for (uint32_t k = 0; k < to.size(); ++k)
      core.variables[u].cost[k] += cost[size_t{k} * to.size() + to[k]];
    if (core.variables[u].edges.size() < core.variables[v].edges.size()) {
      std::vector<uint32_t> back(to.size());
      for (uint32_t k = 0; k < to.size(); ++k) back[to[k]] = k;
      std::swap(u, v);
      to = std::move(back);
    }
    core.Follow(u, v, std::move(to));
    ++counts.contracted;
    any = true;
  }
  return any;
}

bool EliminateVariables(Core& core, const ReduceOptions& options, ReduceCounts& counts) {
  return Eliminator(core, options, counts).Run();
}

}  // namespace heddle::search
