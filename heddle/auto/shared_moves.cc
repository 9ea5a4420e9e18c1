#include "heddle/auto/shared_moves.h"

#include <algorithm>
#include <optional>

namespace heddle {

namespace {

// weight(where it lies, reader, placement) of each price.
template <typename WeightOf>
void AddPairs(const SharedMove& move, const WeightOf& weight, PairCosts& costs) {
  // Many choices leave the tensor in the same place.
  std::vector<bool> occurs(move.prices.size());
  for (uint32_t lies : move.lies) occurs[lies] = true;
  for (size_t n = 0; n < move.readers.size(); ++n) {
    const SharedReader& reader = move.readers[n];
    size_t choices = reader.wants.size();
    std::vector<double> pays(move.prices.size() * choices);
    for (uint32_t lies = 0; lies < occurs.size(); ++lies) {
      for (size_t r = 0; occurs[lies] && r < choices; ++r) {
        double& sum = pays[lies * choices + r];
        for (uint32_t to : reader.wants[r]) {
          double price = move.prices[lies][to];
          sum += price == kForbidden ? kForbidden : weight(lies, n, to) * price;
        }
      }
    }
    costs.Add(move.from, reader.decision,
              [&](size_t c, size_t r) { return pays[move.lies[c] * choices + r]; });
  }
}

}  // namespace

void AddApart(const SharedMove& move, PairCosts& costs) {
  AddPairs(
      move, [](uint32_t, size_t, uint32_t) { return 1.0; }, costs);
}

ShareWeights EqualWeights(const SharedMove& move) {
  std::vector<size_t> wanted_by = WantedBy(move);
  std::vector<std::vector<double>> out;
  for (const SharedReader& reader : move.readers) {
    std::vector<double>& weights = out.emplace_back(wanted_by.size());
    for (const std::vector<uint32_t>& wants : reader.wants) {
      for (uint32_t to : wants) weights[to] = 1 / static_cast<double>(wanted_by[to]);
    }
  }
  return ShareWeights(move.prices.size(), out);
}

std::vector<size_t> WantedBy(const SharedMove& move) {
  std::vector<size_t> out(move.prices[0].size());
  for (const SharedReader& reader : move.readers) {
    std::vector<bool> wanted(out.size());
    for (const std::vector<uint32_t>& wants : reader.wants) {
      for (uint32_t to : wants) wanted[to] = true;
    }
    for (size_t to = 0; to < out.size(); ++to) out[to] += wanted[to];
  }
  return out;
}

namespace {

// The most placements of which each has two readers.
size_t MostShared(const SharedMove& move) {
  size_t wants = 0;
  for (const SharedReader& reader : move.readers) {
    size_t most = 0;
    for (const std::vector<uint32_t>& w : reader.wants) most = std::max(most, w.size());
    wants += most;
  }
  return wants / 2;
}

// Entries for each choice of the copies.
size_t WidthOf(const SharedMove& move) {
  size_t width = move.lies.size();
  for (const SharedReader& reader : move.readers) width += reader.wants.size();
  return width;
}

double DearestWay(const SharedMove& move, uint32_t to) {
  double dearest = 0;
  for (const std::vector<double>& prices : move.prices) dearest = std::max(dearest, prices[to]);
  return dearest;
}

// All sets of at most `most` of `from`, in order; nothing if there are too many.
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

}  // namespace

double SharedMove::Cost(const std::vector<uint32_t>& x) const {
  double sum = 0;
  ForEachCopy(x, [&](uint32_t, double price) { sum += price; });
  return sum;
}

double Cost(const AutoProblem& problem, const std::vector<uint32_t>& x) {
  double sum = Cost(problem.own, x);
  for (const SharedMove& move : problem.shared) sum += move.Cost(x);
  return sum;
}

PairwiseProblem Apart(const AutoProblem& problem) {
  PairwiseProblem out = problem.own;
  PairCosts costs(out);
  for (const SharedMove& move : problem.shared) AddApart(move, costs);
  return out;
}

PairwiseProblem Weighted(const AutoProblem& problem, const std::vector<ShareWeights>& weights) {
  PairwiseProblem out = problem.own;
  PairCosts costs(out);
  for (size_t m = 0; m < problem.shared.size(); ++m)
    AddPairs(
        problem.shared[m],
        [&](uint32_t lies, size_t reader, uint32_t to) { return weights[m][lies][reader][to]; },
        costs);
  return out;
}

SharedMove KeepChoices(SharedMove move, const KeptOf& kept) {
  move.lies = Only(move.lies, kept[move.from]);
  for (SharedReader& reader : move.readers)
    reader.wants = Only(reader.wants, kept[reader.decision]);
  return move;
}

PairwiseBudget KeepChoices(const PairwiseBudget& budget, const KeptOf& kept) {
  PairwiseBudget less{budget.name, budget.lo, budget.hi, {}};
  for (const BudgetTerm& term : budget.terms)
    less.terms.push_back({term.variable, Only(term.amount, kept[term.variable.index()])});
  return less;
}

AutoProblem KeepChoices(const AutoProblem& problem, const KeptOf& kept) {
  AutoProblem out;
  const PairwiseProblem& own = problem.own;
  for (size_t v = 0; v < kept.size(); ++v) {
    const PairwiseVariable& variable = own.variables[VariableId(v)];
    out.own.variables.Add({variable.name, Only(variable.cost, kept[v])});
  }
  for (const PairwiseEdge& edge : own.edges) {
    const std::vector<double>& matrix = own.matrices[edge.matrix];
    size_t columns = own.variables[edge.v].cost.size();
    std::vector<double> less;
    less.reserve(kept[edge.u.index()].size() * kept[edge.v.index()].size());
    for (uint32_t r : kept[edge.u.index()]) {
      for (uint32_t c : kept[edge.v.index()]) less.push_back(matrix[r * columns + c]);
    }
    out.own.edges.push_back({edge.u, edge.v, out.own.matrices.Add(std::move(less))});
  }
  // Restrictions have been kept by what is left.
  for (const PairwiseBudget& budget : own.budgets)
    out.own.budgets.push_back(KeepChoices(budget, kept));
  for (const SharedMove& move : problem.shared) out.shared.push_back(KeepChoices(move, kept));
  return out;
}

WithCopies::WithCopies(const AutoProblem& problem, size_t most_entries)
    : from_(problem), entries_left_(most_entries), out_(problem.own) {
  PairCosts pairs(out_);
  for (const SharedMove& move : problem.shared) AddMove(move, pairs);
}

bool WithCopies::Fits(const AutoProblem& problem, size_t most_entries) {
  for (const SharedMove& move : problem.shared) {
    std::vector<Copies> choices = ListCopies(move, most_entries);
    if (choices.empty()) return false;
    most_entries -= WidthOf(move) * choices.size();
  }
  return true;
}

// Nothing if there are too many.
std::vector<WithCopies::Copies> WithCopies::ListCopies(const SharedMove& move,
                                                       size_t entries_left) {
  size_t most = entries_left / WidthOf(move);
  std::vector<size_t> wanted_by = WantedBy(move);
  std::vector<bool> possible(move.prices.size());
  for (uint32_t lies : move.lies) possible[lies] = true;
  std::vector<Copies> out;
  for (uint32_t lies = 0; lies < possible.size(); ++lies) {
    if (!possible[lies]) continue;
    const std::vector<double>& prices = move.prices[lies];
    std::vector<uint32_t> worth;
    for (uint32_t to = 0; to < prices.size(); ++to) {
      if (wanted_by[to] > 1 && prices[to] > 0 && prices[to] != kForbidden) worth.push_back(to);
    }
    std::vector<std::vector<uint32_t>> sets;
    if (!ListSets(worth, MostShared(move), most - out.size(), sets)) return {};
    for (std::vector<uint32_t>& set : sets) out.push_back({lies, std::move(set)});
  }
  return out;
}

void WithCopies::AddMove(const SharedMove& move, PairCosts& pairs) {
  const std::vector<Copies>& choices = choices_.emplace_back(ListCopies(move, entries_left_));
  if (choices.empty()) {
    is_loose_ = true;
    AddSingly(move, pairs);
    return;
  }
  std::vector<double> costs;
  for (const Copies& choice : choices) {
    double& cost = costs.emplace_back();
    for (uint32_t to : choice.made) cost += move.prices[choice.lies][to];
  }
  entries_left_ -= WidthOf(move) * choices.size();
  auto copies = static_cast<uint32_t>(
      out_.variables.Add({out_.variables[VariableId(move.from)].name, std::move(costs)}).index());
  pairs.Add(move.from, copies,
            [&](size_t c, size_t k) { return move.lies[c] == choices[k].lies ? 0 : kForbidden; });
  for (const SharedReader& reader : move.readers) {
    pairs.Add(reader.decision, copies, [&](size_t r, size_t k) {
      double sum = 0;
      for (uint32_t to : reader.wants[r]) {
        if (std::ranges::find(choices[k].made, to) == choices[k].made.end())
          sum += move.prices[choices[k].lies][to];
      }
      return sum;
    });
  }
}

// A variable for each placement says whether the tensor is there. A reader without it pays as much as the dearest way there: no answer is
// cheaper for that, and choices can be compared, which they cannot where one is forbidden.
void WithCopies::AddSingly(const SharedMove& move, PairCosts& pairs) {
  for (uint32_t to = 0; to < move.prices[0].size(); ++to) {
    double dearest = DearestWay(move, to);
    if (dearest == 0) continue;
    std::string name = out_.variables[VariableId(move.from)].name;
    auto copy = static_cast<uint32_t>(out_.variables.Add({std::move(name), {0, 0}}).index());
    pairs.Add(move.from, copy,
              [&](size_t c, size_t made) { return made == 1 ? move.prices[move.lies[c]][to] : 0; });
    for (const SharedReader& reader : move.readers) {
      pairs.Add(reader.decision, copy, [&](size_t r, size_t made) {
        bool wants = std::ranges::find(reader.wants[r], to) != reader.wants[r].end();
        return wants && made == 0 ? dearest : 0;
      });
    }
  }
}

std::vector<uint32_t> WithCopies::Extended(std::vector<uint32_t> x) const {
  for (size_t m = 0; m < from_.shared.size(); ++m) {
    const SharedMove& move = from_.shared[m];
    std::vector<size_t> readers(move.prices[0].size());
    for (const SharedReader& reader : move.readers) {
      for (uint32_t to : reader.wants[x[reader.decision]]) ++readers[to];
    }
    uint32_t lies = move.lies[x[move.from]];
    const std::vector<double>& prices = move.prices[lies];
    if (choices_[m].empty()) {
      for (uint32_t to = 0; to < prices.size(); ++to) {
        if (DearestWay(move, to) > 0) x.push_back(readers[to] > 0 ? 1 : 0);
      }
      continue;
    }
    std::vector<uint32_t> made;
    for (uint32_t to = 0; to < prices.size(); ++to) {
      if (readers[to] > 1 && prices[to] > 0 && prices[to] != kForbidden) made.push_back(to);
    }
    auto at = std::ranges::find_if(choices_[m], [&](const Copies& copies) {
      return copies.lies == lies && copies.made == made;
    });
    x.push_back(static_cast<uint32_t>(at - choices_[m].begin()));
  }
  return x;
}

}  // namespace heddle
