// Costs of pairs of choices, added to a pairwise problem.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "heddle/solve/problem/problem.h"

namespace heddle {

// Adds costs of pairs to a problem: two decisions have one matrix, the lower one's choices are its rows; a pair of
// one decision is its own cost.
class PairCosts {
 public:
  explicit PairCosts(PairwiseProblem& problem) : problem_(problem) {
    for (const PairwiseEdge& edge : problem.edges) edges_[{edge.u, edge.v}] = edge.matrix;
  }

  // Of choices of `a` and of `b`: cost_of(choice, choice).
  template <typename CostOf>
  void Add(uint32_t a, uint32_t b, CostOf cost_of) {
    if (a == b) {
      std::vector<double>& cost = problem_.variables[VariableId(a)].cost;
      for (size_t k = 0; k < cost.size(); ++k) cost[k] += cost_of(k, k);
    } else if (a < b) {
      AddTo(VariableId(a), VariableId(b), cost_of);
    } else {
      AddTo(VariableId(b), VariableId(a), [&](size_t r, size_t c) { return cost_of(c, r); });
    }
  }

 private:
  template <typename CostOf>
  void AddTo(VariableId u, VariableId v, CostOf cost_of) {
    size_t rows = problem_.variables[u].cost.size();
    size_t columns = problem_.variables[v].cost.size();
    auto [at, added] = edges_.try_emplace({u, v});
    if (added) {
      at->second = problem_.matrices.Add(std::vector<double>(rows * columns));
      problem_.edges.push_back({u, v, at->second});
    }
    std::vector<double>& matrix = problem_.matrices[at->second];
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < columns; ++c) matrix[r * columns + c] += cost_of(r, c);
    }
  }

  PairwiseProblem& problem_;
  std::map<std::pair<VariableId, VariableId>, MatrixId> edges_;
};

}  // namespace heddle
