// Pairwise problems, as data: variables that each take one of their choices, and costs of single
// choices, of pairs, and of shared moves.
//
//   minimize    sum over variables of cost[x] + sum over edges of matrix[x_u][x_v]
//               + sum over moves of the price of the copies that x needs
//   subject to  relations, restrictions and budgets
//
// The caller defines the meaning, such as a placement for every tensor.
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

// The cost of a forbidden choice or pair.
inline constexpr double kForbidden = std::numeric_limits<double>::infinity();

struct PairwiseVariable {
  std::string name;
  // One for each choice.
  std::vector<double> cost;
};

// A matrix has a row for each choice of `u` and a column for each of `v`. Edges may share a matrix.
// Two variables have at most one edge.
struct PairwiseEdge {
  VariableId u;
  VariableId v;
  MatrixId matrix;
};

// (x_u, x_v) is one of `pairs`. A one-to-one relation leaves a single variable of the two.
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

// Limits: choices of all variables, matrix entries of all edges and relations (a shared matrix
// counts for each edge), and the largest number.
inline constexpr size_t kMostChoices = size_t{1} << 24;
inline constexpr size_t kMostEntries = size_t{1} << 25;
inline constexpr double kLargestNumber = 1e30;

struct ProblemSize {
  size_t variables = 0;
  size_t choices = 0;
  size_t edges = 0;
  size_t entries = 0;
};
// A move counts as an edge for each reader.
ProblemSize SizeOf(const PairwiseProblem& problem);

// Returns every error: wrong sizes, invalid numbers, indices out of range, duplicates. All indices
// count from 0.
Diagnostics FindErrors(const PairwiseProblem& problem);

// Returns the cost of an assignment; kForbidden if it uses a forbidden choice or pair, or breaks a
// relation or a restriction. Ignores budgets.
double Cost(const PairwiseProblem& problem, const std::vector<uint32_t>& x);

// Returns the amount of an assignment in a budget.
double Amount(const PairwiseBudget& budget, const std::vector<uint32_t>& x);
// How far an amount may exceed a bound and still count as within: sums of fractions are seldom
// exact.
double BoundTolerance(const PairwiseBudget& budget, double bound);
bool Keeps(const PairwiseBudget& budget, double amount);

// Returns a problem, or a budget, with these choices of each variable. Restrictions are dropped:
// the sets must contain allowed choices only.
PairwiseBudget KeepChoices(const PairwiseBudget& budget, const ChoiceSets& kept);
PairwiseProblem KeepChoices(const PairwiseProblem& problem, const ChoiceSets& kept);

// Returns the problem with edges instead of moves: each reader pays for its own copies. Two
// variables may have several edges. An assignment never costs less than in the original, and is
// feasible in both or in neither.
PairwiseProblem WithoutSharing(const PairwiseProblem& problem);

}  // namespace heddle::search
