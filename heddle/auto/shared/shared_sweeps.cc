#include "heddle/auto/shared/shared_sweeps.h"

#include <algorithm>
#include <cmath>

namespace heddle {

SharedMessages KeepChoices(SharedMessages messages, const KeptOf& kept) {
  for (SharedMessage& message : messages)
    message.about = Only(message.about, kept[message.decision]);
  return messages;
}

SharedSweeps::SharedSweeps(const AutoProblem& problem, const SharedMessages& known)
    : problem_(problem), nodes_(problem.own.variables.size()) {
  for (const SharedMove& move : problem.moves) {
    for (MoveMessages& messages : MoveMessages::ListFor(move))
      moves_.push_back(std::move(messages));
  }
  std::vector<size_t> not_first(nodes_.size());
  std::vector<size_t> not_last(nodes_.size());
  for (MoveMessages& move : moves_) {
    for (size_t i = 0; i < move.members().size(); ++i) {
      uint32_t decision = move.members()[i].decision;
      nodes_[decision].parts.push_back({&move, i});
      not_first[decision] += decision == move.first() ? 0 : 1;
      not_last[decision] += decision == move.last() ? 0 : 1;
    }
  }
  for (size_t d = 0; d < nodes_.size(); ++d) {
    size_t most = std::max({not_first[d], not_last[d], size_t{1}});
    nodes_[d].share = 1 / static_cast<double>(most);
    nodes_[d].excess.resize(problem.own.variables[VariableId(d)].cost.size());
  }
  SetPrice(0);
  Load(known);
}

void SharedSweeps::Load(const SharedMessages& known) {
  size_t count = 0;
  for (const MoveMessages& move : moves_) count += move.members().size();
  if (known.size() != count) return;
  size_t next = 0;
  for (MoveMessages& move : moves_) {
    for (size_t i = 0; i < move.members().size(); ++i) {
      const MoveMessages::Member& member = move.members()[i];
      const std::vector<double>& about = known[next++].about;
      if (about.size() != member.place.size()) continue;
      said_.assign(member.said.size(), kForbidden);
      for (size_t k = 0; k < about.size(); ++k)
        said_[member.place[k]] = std::min(said_[member.place[k]], about[k]);
      // What must not be taken in one problem may be possible in another.
      for (double& said : said_) said = std::isfinite(said) ? said : 0;
      move.Say(i, said_);
    }
  }
}

SharedMessages SharedSweeps::Messages() const {
  SharedMessages out;
  for (const MoveMessages& move : moves_) {
    for (const MoveMessages::Member& member : move.members())
      out.push_back({member.decision, Only(member.said, member.place)});
  }
  return out;
}

void SharedSweeps::SetPrice(double price) {
  price_ = price;
  bound_ = base_ = -kForbidden;
  for (size_t d = 0; d < nodes_.size(); ++d)
    nodes_[d].cost = problem_.own.variables[VariableId(d)].cost;
  if (price == 0) return;
  for (const BudgetTerm& term : problem_.own.budgets[0].terms) {
    std::vector<double>& cost = nodes_[term.variable.index()].cost;
    for (size_t k = 0; k < cost.size(); ++k) cost[k] += price * term.amount[k];
  }
}

void SharedSweeps::Suggest(uint32_t decision) {
  const Node& node = nodes_[decision];
  sum_ = node.cost;
  for (const Part& part : node.parts) {
    const std::vector<double>& told = part.move->TellAfter(part.member, suggested_, scratch_);
    const std::vector<uint32_t>& place = part.move->members()[part.member].place;
    for (size_t k = 0; k < sum_.size(); ++k) sum_[k] += told[place[k]];
  }
  auto best = std::ranges::min_element(sum_);
  suggested_.push_back(static_cast<uint32_t>(best - sum_.begin()));
}

// Takes all that moves say about the choices of a decision, and gives each its share of that.
void SharedSweeps::Visit(uint32_t decision, bool forward) {
  Node& node = nodes_[decision];
  sum_ = node.cost;
  for (const Part& part : node.parts) {
    const MoveMessages::Member& member = part.move->Tell(part.member, scratch_);
    // All that is left in a move once its last decision is visited.
    if (!forward && decision == part.move->first()) sum_of_least_ += member.least_told;
    for (size_t k = 0; k < sum_.size(); ++k) sum_[k] += member.told[member.place[k]];
  }
  double least = *std::ranges::min_element(sum_);
  if (!forward) sum_of_least_ += least;
  for (double& sum : sum_) sum = sum == kForbidden ? kForbidden : sum - least;
  if (!forward) node.excess = sum_;
  for (const Part& part : node.parts) {
    bool ends = decision == (forward ? part.move->last() : part.move->first());
    Say(part, ends ? 0 : node.share);
  }
}

void SharedSweeps::Say(const Part& part, double share) {
  const MoveMessages::Member& member = part.move->members()[part.member];
  said_.assign(member.told.size(), kForbidden);
  for (size_t k = 0; k < sum_.size(); ++k) {
    double say = sum_[k] == kForbidden ? kForbidden : share * sum_[k];
    double& said = said_[member.place[k]];
    said = say < said ? say : said;
  }
  for (size_t i = 0; i < said_.size(); ++i)
    said_[i] = said_[i] == kForbidden ? kForbidden : said_[i] - member.told[i];
  part.move->Say(part.member, said_);
}

double SharedSweeps::Run(bool suggests) {
  base_ = bound_;
  auto count = static_cast<uint32_t>(nodes_.size());
  if (suggests) suggested_.clear();
  for (uint32_t d = 0; d < count; ++d) {
    if (suggests) Suggest(d);
    Visit(d, true);
  }
  sum_of_least_ = 0;
  for (uint32_t d = count; d-- > 0;) Visit(d, false);
  if (price_ != 0) {
    const PairwiseBudget& budget = problem_.own.budgets[0];
    // An amount that is beyond it by so little counts as within.
    sum_of_least_ -= price_ * (budget.hi + BoundTolerance(budget, budget.hi));
  }
  return bound_ = sum_of_least_;
}

std::vector<std::vector<double>> SharedSweeps::AtLeast() const {
  std::vector<std::vector<double>> out;
  for (const Node& node : nodes_) {
    out.push_back(node.excess);
    for (double& cost : out.back()) cost = cost == kForbidden ? kForbidden : base_ + cost;
  }
  return out;
}

}  // namespace heddle
