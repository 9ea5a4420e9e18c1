// A problem during its reduction. A trail converts any answer of the reduced problem back to an
// answer of the original problem, at the same cost.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

// The amounts of a variable's choices in one row.
struct CoreTerm {
  uint32_t row = 0;
  std::vector<double> amount;
};

struct CoreVariable {
  // Empty: the variable is gone.
  std::vector<double> cost;
  std::vector<uint32_t> edges;
  // In order of rows.
  std::vector<CoreTerm> terms;
  // Whether dominated choices must be searched again.
  bool unchecked = true;

  uint32_t size() const { return static_cast<uint32_t>(cost.size()); }
  bool gone() const { return cost.empty(); }
};

struct CoreEdge {
  uint32_t u = 0;
  uint32_t v = 0;
  // Its position in the lists of its variables.
  uint32_t at_u = 0;
  uint32_t at_v = 0;
  // Row-major, a row for each choice of `u`. Empty: the edge is gone.
  std::vector<double> cost;
  // Whether choices without partners must be searched again.
  bool unchecked = true;

  bool gone() const { return cost.empty(); }
};

// A budget without decided amounts: lo <= sum of amounts <= hi, tolerances included.
struct CoreRow {
  double lo = 0;
  double hi = 0;
};

// A matrix as seen from one of its ends.
struct EdgeView {
  const double* data;
  size_t own_stride;
  size_t other_stride;
  double operator()(size_t own, size_t other) const {
    return data[own * own_stride + other * other_stride];
  }
};

// Steps of a trail. Each determines the answer before it from the answer after it.
struct KeptChoices {
  uint32_t variable;
  std::vector<uint32_t> kept;
};
struct FollowingVariable {
  uint32_t variable;
  uint32_t leader;
  // For each choice of the leader.
  std::vector<uint32_t> choice;
};
struct JoinedVariables {
  // The variable that replaces both.
  uint32_t variable;
  uint32_t other;
  // For each of its choices, those of the two.
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
};
struct EliminatedVariable {
  struct Neighbour {
    uint32_t variable;
    // A row for each choice of the eliminated variable.
    std::vector<double> cost;
  };
  uint32_t variable;
  std::vector<double> cost;
  std::vector<Neighbour> neighbours;
};
using TrailStep = std::variant<KeptChoices, FollowingVariable, JoinedVariables, EliminatedVariable>;

class Core {
 public:
  std::vector<CoreVariable> variables;
  std::vector<CoreEdge> edges;
  std::vector<CoreRow> rows;
  // Reductions need a core without moves; `AddCopies` converts moves to variables and edges.
  std::vector<SharedMove> moves;
  double constant = 0;
  std::vector<TrailStep> trail;

  uint32_t Other(uint32_t edge, uint32_t variable) const {
    return edges[edge].u == variable ? edges[edge].v : edges[edge].u;
  }
  EdgeView View(uint32_t edge, uint32_t variable) const {
    const CoreEdge& e = edges[edge];
    size_t columns = variables[e.v].size();
    return e.u == variable ? EdgeView{e.cost.data(), columns, 1}
                           : EdgeView{e.cost.data(), 1, columns};
  }

  // `cost` has a row for each choice of `u`. Adds to the existing edge, if there is one.
  void AddEdge(uint32_t u, uint32_t v, std::vector<double> cost);
  // Removes an edge. Returns its matrix, with a row for each choice of `variable`.
  std::vector<double> TakeEdge(uint32_t edge, uint32_t variable);
  // Removes all edges of a variable. Returns them with their other ends.
  std::vector<EliminatedVariable::Neighbour> TakeEdges(uint32_t variable);
  // Keeps the choices whose byte in `keep` is not 0. `keep` has a byte for each choice of each
  // variable in turn. Each variable must keep one.
  void Keep(std::span<const uint8_t> keep);
  // Makes `follower` follow `leader`, which has the same number of choices: `choice` maps them.
  void Follow(uint32_t leader, uint32_t follower, std::vector<uint32_t> choice);
  // Joins two variables under the index of the first. Its choices are the pairs that are not
  // forbidden.
  void Join(uint32_t a, uint32_t b);
  // Returns the rest of a core without moves, with new indices. `from` receives the old indices.
  Core Copy(std::vector<uint32_t>& from) const;

  size_t VariableCount() const;
  size_t ChoiceCount() const;
  size_t EntryCount() const;
  bool HasTerms() const;
  double Cost(const std::vector<uint32_t>& x) const;
  // Extends an answer of the reduced problem to the original problem. `x` has an entry for every
  // variable, removed or not.
  void Unwind(std::vector<uint32_t>& x) const;
  // Returns the remaining choices, with the problem's indices. Only choices may have been removed
  // so far.
  ChoiceSets Kept() const;

 private:
  // Adds the amounts of the choices `choice` of another variable.
  void AddTerms(CoreVariable& to, const std::vector<CoreTerm>& terms,
                std::span<const uint32_t> choice);
  // Adds edges to a variable whose choice k corresponds to row choice[k] of their matrices.
  void PutEdges(uint32_t variable, const std::vector<EliminatedVariable::Neighbour>& taken,
                std::span<const uint32_t> choice);

  // Edges by pairs of variables. Only used for lookups, because its order is unspecified.
  std::unordered_map<uint64_t, uint32_t> edge_of_;
};

// Makes the core of a problem, with one-to-one relations contracted. Variables keep their indices.
// Costs may still be kForbidden. The second result is false if a variable has no choice left.
std::pair<Core, bool> MakeCore(const PairwiseProblem& problem);

// Replaces the moves by pairs, exactly. A move with several readers gets a variable whose choices
// are the place of the tensor and the set of placements that it is copied to for all readers.
void AddCopies(Core& core);
// Whether the matrices of these variables have at most `most_entries` entries.
bool CopiesFit(std::span<const SharedMove> moves, size_t most_entries);

// Transposes a `rows x columns` matrix.
std::vector<double> Transpose(const std::vector<double>& matrix, size_t rows, size_t columns);

}  // namespace heddle::search
