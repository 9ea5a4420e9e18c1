// Makes the core of a problem: applies restrictions and forbidden choices, and merges variables
// with one-to-one relations.
#include <algorithm>

#include "heddle/search/solve/reduce/core.h"

namespace heddle::search {
namespace {

constexpr uint32_t kNoChoice = UINT32_MAX;

// Returns, for each choice of `u`, the choice of `v` in the relation, or kNoChoice. Empty if it is
// not one to one.
std::vector<uint32_t> AsFunction(const PairwiseRelation& relation, uint32_t u_size,
                                 uint32_t v_size) {
  std::vector<uint32_t> to(u_size, kNoChoice);
  std::vector<bool> taken(v_size);
  for (auto [a, b] : relation.pairs) {
    if (to[a] != kNoChoice || taken[b]) return {};
    to[a] = b;
    taken[b] = true;
  }
  return to;
}

class CoreMaker {
 public:
  explicit CoreMaker(const PairwiseProblem& problem) : problem_(problem) {}

  std::pair<Core, bool> Make() {
    FindAllowed();
    LinkRelations();
    leader_.assign(size(), kNoChoice);
    choice_.resize(size());
    core_.variables.resize(size());
    for (uint32_t v = 0; v < size(); ++v) {
      if (leader_[v] != kNoChoice) continue;
      AddGroup(v);
      if (core_.variables[v].gone()) return {std::move(core_), false};
    }
    for (const PairwiseEdge& edge : problem_.edges)
      AddMatrix(edge.u.index(), edge.v.index(), problem_.matrices[edge.matrix]);
    for (const PairwiseRelation& relation : general_) AddRelation(relation);
    AddRows();
    for (const SharedMove& move : problem_.moves) core_.moves.push_back(KeepChoices(move, choice_));
    return {std::move(core_), true};
  }

 private:
  struct Link {
    uint32_t to;
    // For each choice of one end, the choice of the end `to`.
    std::vector<uint32_t> choice;
  };

  uint32_t size() const { return static_cast<uint32_t>(problem_.variables.size()); }
  uint32_t size(uint32_t v) const {
    return static_cast<uint32_t>(problem_.variables[VariableId(v)].cost.size());
  }

  void FindAllowed() {
    allowed_.resize(size());
    for (uint32_t v = 0; v < size(); ++v) {
      for (double cost : problem_.variables[VariableId(v)].cost)
        allowed_[v].push_back(cost != kForbidden);
    }
    for (const PairwiseRestriction& restriction : problem_.restrictions) {
      std::vector<bool>& allowed = allowed_[restriction.variable.index()];
      std::vector<bool> listed(allowed.size());
      for (uint32_t k : restriction.allowed) listed[k] = true;
      for (size_t k = 0; k < allowed.size(); ++k) allowed[k] = allowed[k] && listed[k];
    }
  }

  void LinkRelations() {
    links_.resize(size());
    for (const PairwiseRelation& relation : problem_.relations) {
      uint32_t u = relation.u.index();
      uint32_t v = relation.v.index();
      std::vector<uint32_t> to = AsFunction(relation, size(u), size(v));
      if (to.empty()) {
        general_.push_back(relation);
        continue;
      }
      std::vector<uint32_t> back(size(v), kNoChoice);
      for (uint32_t k = 0; k < to.size(); ++k) {
        if (to[k] != kNoChoice) back[to[k]] = k;
      }
      links_[u].push_back({v, std::move(to)});
      links_[v].push_back({u, std::move(back)});
    }
  }

  // Merges all variables that are tied to `leader`, directly or indirectly.
  void AddGroup(uint32_t leader) {
    std::vector<uint32_t> members{leader};
    std::vector<bool> valid = allowed_[leader];
    leader_[leader] = leader;
    for (uint32_t k = 0; k < size(leader); ++k) choice_[leader].push_back(k);
    for (size_t i = 0; i < members.size(); ++i) {
      for (const Link& link : links_[members[i]]) {
        bool is_new = leader_[link.to] == kNoChoice;
        if (is_new) {
          members.push_back(link.to);
          leader_[link.to] = leader;
          choice_[link.to].assign(size(leader), 0);
        }
        for (uint32_t k = 0; k < size(leader); ++k) {
          if (!valid[k]) continue;
          uint32_t follows = link.choice[choice_[members[i]][k]];
          if (is_new) choice_[link.to][k] = follows;
          valid[k] =
              follows != kNoChoice && follows == choice_[link.to][k] && allowed_[link.to][follows];
        }
      }
    }
    Join(members, valid);
  }

  void Join(const std::vector<uint32_t>& members, const std::vector<bool>& valid) {
    uint32_t leader = members[0];
    std::vector<uint32_t> kept;
    for (uint32_t k = 0; k < valid.size(); ++k) {
      if (valid[k]) kept.push_back(k);
    }
    std::vector<double>& cost = core_.variables[leader].cost;
    cost.assign(kept.size(), 0);
    for (uint32_t member : members) {
      std::vector<uint32_t>& choice = choice_[member];
      for (size_t i = 0; i < kept.size(); ++i) {
        choice[i] = choice[kept[i]];
        cost[i] += problem_.variables[VariableId(member)].cost[choice[i]];
      }
      choice.resize(kept.size());
      if (member != leader) core_.trail.push_back(FollowingVariable{member, leader, choice});
    }
    // When unwinding, followers come first: they need the leader's choice in the core's numbering.
    core_.trail.insert(core_.trail.end() - static_cast<ptrdiff_t>(members.size() - 1),
                       KeptChoices{leader, std::move(kept)});
  }

  void AddMatrix(uint32_t u, uint32_t v, const std::vector<double>& matrix) {
    uint32_t a = leader_[u];
    uint32_t b = leader_[v];
    const std::vector<uint32_t>& rows = choice_[u];
    const std::vector<uint32_t>& columns = choice_[v];
    size_t width = size(v);
    if (a == b) {
      for (size_t k = 0; k < rows.size(); ++k)
        core_.variables[a].cost[k] += matrix[rows[k] * width + columns[k]];
      return;
    }
    // If all choices of both are kept, they are in the original order.
    bool whole = u == a && v == b && rows.size() == size(u) && columns.size() == width;
    if (whole) return core_.AddEdge(a, b, matrix);
    std::vector<double> cost;
    cost.reserve(rows.size() * columns.size());
    for (uint32_t r : rows) {
      const double* row = matrix.data() + r * width;
      for (uint32_t c : columns) cost.push_back(row[c]);
    }
    core_.AddEdge(a, b, std::move(cost));
  }

  void AddRelation(const PairwiseRelation& relation) {
    std::vector<double> matrix(size_t{size(relation.u.index())} * size(relation.v.index()),
                               kForbidden);
    for (auto [a, b] : relation.pairs) matrix[a * size(relation.v.index()) + b] = 0;
    AddMatrix(relation.u.index(), relation.v.index(), matrix);
  }

  void AddRows() {
    for (const PairwiseBudget& budget : problem_.budgets) {
      auto row = static_cast<uint32_t>(core_.rows.size());
      // Half of the tolerance is for the result, and half for the rounding of sums on the way.
      core_.rows.push_back({budget.lo - BoundTolerance(budget, budget.lo) / 2,
                            budget.hi + BoundTolerance(budget, budget.hi) / 2});
      for (const BudgetTerm& term : budget.terms) AddTerm(row, term);
    }
  }

  void AddTerm(uint32_t row, const BudgetTerm& term) {
    uint32_t v = term.variable.index();
    CoreVariable& variable = core_.variables[leader_[v]];
    if (variable.terms.empty() || variable.terms.back().row != row)
      variable.terms.push_back({row, std::vector<double>(variable.size())});
    std::vector<double>& amount = variable.terms.back().amount;
    for (size_t k = 0; k < amount.size(); ++k) amount[k] += term.amount[choice_[v][k]];
  }

  const PairwiseProblem& problem_;
  Core core_;
  std::vector<std::vector<bool>> allowed_;
  std::vector<std::vector<Link>> links_;
  std::vector<PairwiseRelation> general_;
  // For each variable, its leader, and its choice for each choice of the leader.
  std::vector<uint32_t> leader_;
  std::vector<std::vector<uint32_t>> choice_;
};

}  // namespace

std::pair<Core, bool> MakeCore(const PairwiseProblem& problem) { return CoreMaker(problem).Make(); }

}  // namespace heddle::search
