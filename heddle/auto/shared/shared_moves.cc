#include "heddle/auto/shared/shared_moves.h"

#include <algorithm>

#include "heddle/base/check.h"

namespace heddle {

SharedReader::SharedReader(uint32_t decision, const std::vector<std::vector<uint32_t>>& wants)
    : decision_(decision), choices_(wants.size()) {
  for (const std::vector<uint32_t>& want : wants) most_ = std::max(most_, want.size());
  wants_.resize(choices_ * most_, kNone);
  for (size_t c = 0; c < choices_; ++c) std::ranges::copy(wants[c], wants_.data() + c * most_);
}

void SharedReader::Keep(const std::vector<uint32_t>& kept) {
  std::vector<uint32_t> left;
  left.reserve(kept.size() * most_);
  for (uint32_t k : kept)
    left.insert(left.end(), wants_.data() + k * most_, wants_.data() + (k + 1) * most_);
  wants_ = std::move(left);
  choices_ = kept.size();
}

std::vector<size_t> WantedBy(const std::vector<SharedReader>& readers, size_t placements) {
  std::vector<size_t> out(placements);
  for (const SharedReader& reader : readers) {
    std::vector<bool> wanted(out.size());
    for (size_t c = 0; c < reader.choices(); ++c) {
      for (uint32_t to : reader.Wants(c)) wanted[to] = true;
    }
    for (size_t to = 0; to < out.size(); ++to) out[to] += wanted[to];
  }
  return out;
}

namespace {

// Every reader pays each price for itself.
void AddApart(const SharedMove& move, PairCosts& costs) {
  const MovePrices& prices = *move.prices;
  // Many choices leave the tensor in the same place.
  std::vector<bool> occurs(prices.places());
  for (uint32_t lies : move.lies) occurs[lies] = true;
  for (const SharedReader& reader : move.readers) {
    size_t choices = reader.choices();
    std::vector<double> pays(prices.places() * choices);
    for (uint32_t lies = 0; lies < occurs.size(); ++lies) {
      for (size_t r = 0; occurs[lies] && r < choices; ++r) {
        for (uint32_t to : reader.Wants(r)) pays[lies * choices + r] += prices(lies, to);
      }
    }
    costs.Add(move.from, reader.decision(),
              [&](size_t c, size_t r) { return pays[move.lies[c] * choices + r]; });
  }
}

// The most placements of which each has two readers.
size_t MostShared(const SharedMove& move) {
  size_t wants = 0;
  for (const SharedReader& reader : move.readers) wants += reader.most();
  return wants / 2;
}

// Entries for each choice of the copies.
size_t WidthOf(const SharedMove& move) {
  size_t width = move.lies.size();
  for (const SharedReader& reader : move.readers) width += reader.choices();
  return width;
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
  for (const SharedMove& move : problem.moves) sum += move.Cost(x);
  return sum;
}

ProblemSize SizeOf(const AutoProblem& problem) {
  ProblemSize size = SizeOf(problem.own);
  for (const SharedMove& move : problem.moves) {
    size.edges += move.readers.size();
    for (const SharedReader& reader : move.readers)
      size.entries += move.lies.size() * reader.choices();
  }
  return size;
}

PairwiseProblem Apart(const AutoProblem& problem) {
  PairwiseProblem out = problem.own;
  PairCosts costs(out);
  for (const SharedMove& move : problem.moves) AddApart(move, costs);
  return out;
}

SharedMove KeepChoices(SharedMove move, const KeptOf& kept) {
  move.lies = Only(move.lies, kept[move.from]);
  for (SharedReader& reader : move.readers) reader.Keep(kept[reader.decision()]);
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
  // Restrictions have been kept by what is left.
  for (const PairwiseBudget& budget : own.budgets)
    out.own.budgets.push_back(KeepChoices(budget, kept));
  for (const SharedMove& move : problem.moves) out.moves.push_back(KeepChoices(move, kept));
  return out;
}

WithCopies::WithCopies(const AutoProblem& problem) : from_(problem), out_(problem.own) {
  PairCosts pairs(out_);
  for (const SharedMove& move : problem.moves) AddMove(move, pairs);
}

bool WithCopies::Fits(const AutoProblem& problem, size_t most_entries) {
  for (const SharedMove& move : problem.moves) {
    if (!move.is_shared()) continue;
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
  std::vector<size_t> wanted_by = WantedBy(move.readers, move.prices->width);
  std::vector<bool> possible(move.prices->places());
  for (uint32_t lies : move.lies) possible[lies] = true;
  std::vector<Copies> out;
  for (uint32_t lies = 0; lies < possible.size(); ++lies) {
    if (!possible[lies]) continue;
    const double* prices = move.prices->Row(lies);
    std::vector<uint32_t> worth;
    for (uint32_t to = 0; to < wanted_by.size(); ++to) {
      if (wanted_by[to] > 1 && prices[to] > 0 && prices[to] != kForbidden) worth.push_back(to);
    }
    std::vector<std::vector<uint32_t>> sets;
    if (!ListSets(worth, MostShared(move), most - out.size(), sets)) return {};
    for (std::vector<uint32_t>& set : sets) out.push_back({lies, std::move(set)});
  }
  return out;
}

void WithCopies::AddMove(const SharedMove& move, PairCosts& pairs) {
  std::vector<Copies>& choices = choices_.emplace_back();
  if (!move.is_shared()) return AddApart(move, pairs);
  choices = ListCopies(move, kMostEntries);
  HEDDLE_CHECK(!choices.empty(), "copies");
  std::vector<double> costs;
  for (const Copies& choice : choices) {
    double& cost = costs.emplace_back();
    for (uint32_t to : choice.made) cost += (*move.prices)(choice.lies, to);
  }
  auto copies = static_cast<uint32_t>(
      out_.variables.Add({out_.variables[VariableId(move.from)].name, std::move(costs)}).index());
  pairs.Add(move.from, copies,
            [&](size_t c, size_t k) { return move.lies[c] == choices[k].lies ? 0 : kForbidden; });
  for (const SharedReader& reader : move.readers) {
    pairs.Add(reader.decision(), copies, [&](size_t r, size_t k) {
      double sum = 0;
      for (uint32_t to : reader.Wants(r)) {
        if (std::ranges::find(choices[k].made, to) == choices[k].made.end())
          sum += (*move.prices)(choices[k].lies, to);
      }
      return sum;
    });
  }
}

std::vector<uint32_t> WithCopies::Extended(std::vector<uint32_t> x) const {
  for (size_t m = 0; m < from_.moves.size(); ++m) {
    const SharedMove& move = from_.moves[m];
    if (!move.is_shared()) continue;
    std::vector<size_t> readers(move.prices->width);
    for (const SharedReader& reader : move.readers) {
      for (uint32_t to : reader.Wants(x[reader.decision()])) ++readers[to];
    }
    uint32_t lies = move.lies[x[move.from]];
    const double* prices = move.prices->Row(lies);
    std::vector<uint32_t> made;
    for (uint32_t to = 0; to < readers.size(); ++to) {
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
