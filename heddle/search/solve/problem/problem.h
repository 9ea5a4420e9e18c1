// Pairwise problems, as data: variables that each take one of their choices, and costs of choices
// alone, in pairs, and in shared moves.
//
//   minimize    sum over variables of cost[x] + sum over edges of matrix[x_u][x_v]
//               + sum over moves of the price of the copies that x needs
//   subject to  relations, restrictions and budgets
//
// A placement for every tensor, an action for every activation: what is decided is the caller's affair.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/base/id.h"
#include "heddle/core/base/result.h"
#include "heddle/search/solve/problem/shared_move.h"

namespace heddle::search {

using VariableId = Id<struct VariableTag>;
using MatrixId = Id<struct MatrixTag>;

// The cost of a choice, or of a pair, that must not be taken.
inline constexpr double kForbidden = std::numeric_limits<double>::infinity();

struct PairwiseVariable {
  std::string name;
  // One for each choice.
  std::vector<double> cost;
};

// At most one for two variables. A matrix has a row for each choice of `u` and a column for each of `v`; any number of edges may
// share one.
struct PairwiseEdge {
  VariableId u;
  VariableId v;
  MatrixId matrix;
};

// (x_u, x_v) is one of `pairs`. Where that is one to one, a single variable is left of the two.
struct PairwiseRelation {
  VariableId u;
  VariableId v;
  std::string kind;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
};

// x is one of `allowed`.
struct PairwiseRestriction {
  VariableId variable;
  std::string kind;
  std::vector<uint32_t> allowed;
};

struct BudgetTerm {
  VariableId variable;
  // One for each choice.
  std::vector<double> amount;
};

// lo <= sum of amount[x] <= hi.
struct PairwiseBudget {
  std::string name;
  double lo = -std::numeric_limits<double>::infinity();
  double hi = std::numeric_limits<double>::infinity();
  std::vector<BudgetTerm> terms;
};

struct PairwiseProblem {
  Table<VariableId, PairwiseVariable> variables;
  Table<MatrixId, std::vector<double>> matrices;
  std::vector<PairwiseEdge> edges;
  // A problem with moves has no edges and no relations: a move with one reader is an edge.
  std::vector<SharedMove> moves;
  std::vector<PairwiseRelation> relations;
  std::vector<PairwiseRestriction> restrictions;
  std::vector<PairwiseBudget> budgets;
};

// What is taken on: the most choices of all variables, the most matrix entries of all edges and relations (a shared matrix counts
// for each edge), and the largest number.
inline constexpr size_t kMostChoices = size_t{1} << 24;
inline constexpr size_t kMostEntries = size_t{1} << 25;
inline constexpr double kLargestNumber = 1e30;

struct ProblemSize {
  size_t variables = 0;
  size_t choices = 0;
  size_t edges = 0;
  size_t entries = 0;
};
// A move has an edge for each reader.
ProblemSize SizeOf(const PairwiseProblem& problem);

// Every mistake: sizes that do not fit, numbers that are none, ids out of range, things said twice. What counts, counts from 0.
Diagnostics FindErrors(const PairwiseProblem& problem);

// What an assignment costs: kForbidden if it takes what must not be taken, or breaks a relation or a restriction. Budgets are
// apart.
double Cost(const PairwiseProblem& problem, const std::vector<uint32_t>& x);

// What an assignment takes of a budget.
double Amount(const PairwiseBudget& budget, const std::vector<uint32_t>& x);
// How far beyond one of its bounds an amount may be and still counts as within: sums of fractions are seldom exact.
double BoundTolerance(const PairwiseBudget& budget, double bound);
bool Keeps(const PairwiseBudget& budget, double amount);

// A problem, or a budget, with these choices of each variable. Restrictions are dropped: the sets
// hold allowed choices only.
PairwiseBudget KeepChoices(const PairwiseBudget& budget, const ChoiceSets& kept);
PairwiseProblem KeepChoices(const PairwiseProblem& problem, const ChoiceSets& kept);

// The same problem with edges instead of moves: each reader pays for its own copies. Two variables
// may have several edges. An assignment never costs less, and is possible in both or in neither.
PairwiseProblem WithoutSharing(const PairwiseProblem& problem);

}  // namespace heddle::search
