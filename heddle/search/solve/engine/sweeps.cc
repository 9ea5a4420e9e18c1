#include "heddle/search/solve/engine/sweeps.h"

#include <algorithm>
#include <cmath>

#include "heddle/search/solve/reduce/min_plus.h"

namespace heddle::search {

Messages KeepChoices(Messages messages, const ChoiceSets& kept) {
  for (Message& message : messages) message.about = Select(message.about, kept[message.variable]);
  return messages;
}

Sweeps::Sweeps(const Core& core, std::vector<double> prices, const Messages& known) : core_(core) {
  AddNodes();
  AddHalves();
  AddParts();
  SetShares();
  Load(known);
  rounded_.x.resize(core.variables.size());
  kept_.x.resize(core.variables.size());
  whole_ranges_.resize(core.rows.size());
  for (const CoreVariable& variable : core.variables) {
    for (const CoreTerm& term : variable.terms) {
      auto [least, most] = std::ranges::minmax(term.amount);
      whole_ranges_[term.row].least += least;
      whole_ranges_[term.row].most += most;
    }
  }
  SetPrices(std::move(prices));
}

void Sweeps::AddNodes() {
  size_t choices = 0;
  uint32_t most = 0;
  for (uint32_t v = 0; v < core_.variables.size(); ++v) {
    uint32_t size = core_.variables[v].size();
    if (size == 0) continue;
    nodes_.push_back({v, size, choices, {}, {}, {}, 0});
    choices += size;
    most = std::max(most, size);
  }
  cost_.resize(choices);
  excess_.resize(choices);
  sum_.resize(most);
  scratch_.resize(most);
}

void Sweeps::AddHalves() {
  std::vector<Node*> node_of(core_.variables.size());
  for (Node& node : nodes_) node_of[node.variable] = &node;
  size_t next = 0;
  for (uint32_t e = 0; e < core_.edges.size(); ++e) {
    const CoreEdge& edge = core_.edges[e];
    if (edge.gone()) continue;
    Node& u = *node_of[edge.u];
    Node& v = *node_of[edge.v];
    size_t to_u = next;
    size_t to_v = to_u + u.size;
    next = to_v + v.size;
    // Work in both directions, with the additions to each message, and a constant.
    edge_work_ += 2 * edge.cost.size() + 8 * (size_t{u.size} + v.size) + 128;
    bool u_first = edge.u < edge.v;
    (u_first ? u.later : u.earlier).push_back({e, edge.v, to_u, to_v, true});
    (u_first ? v.earlier : v.later).push_back({e, edge.u, to_v, to_u, false});
  }
  messages_.resize(next);
}

void Sweeps::AddParts() {
  for (const SharedMove& move : core_.moves) {
    for (MoveMessages& messages : MoveMessages::ListFor(move))
      moves_.push_back(std::move(messages));
  }
  std::vector<Node*> node_of(core_.variables.size());
  for (Node& node : nodes_) node_of[node.variable] = &node;
  for (MoveMessages& move : moves_) {
    for (size_t i = 0; i < move.members().size(); ++i)
      node_of[move.members()[i].variable]->parts.push_back({&move, i});
  }
}

void Sweeps::SetShares() {
  for (Node& node : nodes_) {
    size_t earlier = node.earlier.size();
    size_t later = node.later.size();
    for (const MovePart& part : node.parts) {
      earlier += node.variable == part.move->first() ? 0 : 1;
      later += node.variable == part.move->last() ? 0 : 1;
    }
    node.share = 1.0 / static_cast<double>(std::max({earlier, later, size_t{1}}));
  }
}

void Sweeps::Load(const Messages& known) {
  size_t next = 0;
  for (MoveMessages& move : moves_) {
    for (size_t i = 0; i < move.members().size() && next < known.size(); ++i) {
      const MoveMessages::Member& member = move.members()[i];
      const std::vector<double>& about = known[next++].about;
      if (about.size() != member.place.size()) continue;
      message_.assign(member.to_move.size(), kForbidden);
      for (size_t k = 0; k < about.size(); ++k)
        message_[member.place[k]] = std::min(message_[member.place[k]], about[k]);
      // A choice that is forbidden in one problem may be feasible in another.
      for (double& cost : message_) cost = std::isfinite(cost) ? cost : 0;
      move.SetMessageFrom(i, message_);
    }
  }
}

Messages Sweeps::MoveState() const {
  Messages out;
  for (const MoveMessages& move : moves_) {
    for (const MoveMessages::Member& member : move.members())
      out.push_back({member.variable, Select(member.to_move, member.place)});
  }
  return out;
}

void Sweeps::SetPrices(std::vector<double> prices) {
  prices_ = std::move(prices);
  bound_ = -kForbidden;
  price_error_ = 0;
  for (size_t r = 0; r < prices_.size(); ++r) {
    const RowRange& range = whole_ranges_[r];
    price_error_ += 1e-15 * std::abs(prices_[r]) * (std::abs(range.least) + std::abs(range.most));
  }
  for (const Node& node : nodes_) {
    const CoreVariable& variable = core_.variables[node.variable];
    std::ranges::copy(variable.cost, &cost_[node.first]);
    for (const CoreTerm& term : variable.terms) {
      double price = prices_[term.row];
      for (size_t k = 0; k < node.size; ++k) cost_[node.first + k] += price * term.amount[k];
    }
  }
}

// Adds up the cost of each choice, with the messages of all neighbors.
void Sweeps::Gather(const Node& node) {
  std::copy_n(&cost_[node.first], node.size, sum_.begin());
  for (const std::vector<Half>* side : {&node.earlier, &node.later}) {
    for (const Half& half : *side) {
      const double* in = &messages_[half.in];
      for (size_t k = 0; k < node.size; ++k) sum_[k] += in[k];
    }
  }
}

// Adds the messages of moves. Returns false if no choice is feasible.
bool Sweeps::GatherParts(const Node& node) {
  for (const MovePart& part : node.parts) {
    const MoveMessages::Member& member = part.move->MessageTo(part.member, move_scratch_);
    for (size_t k = 0; k < node.size; ++k) sum_[k] += member.from_move[member.place[k]];
  }
  return *std::min_element(sum_.begin(), sum_.begin() + node.size) != kForbidden;
}

// Gives each move its share of the costs. The last variable of a move in this direction keeps all
// of them.
void Sweeps::SendToMoves(const Node& node, bool forward) {
  double least = *std::min_element(sum_.begin(), sum_.begin() + node.size);
  for (const MovePart& part : node.parts) {
    const MoveMessages::Member& member = part.move->members()[part.member];
    bool ends = node.variable == (forward ? part.move->last() : part.move->first());
    double share = ends ? 0 : node.share;
    message_.assign(member.from_move.size(), kForbidden);
    for (size_t k = 0; k < node.size; ++k) {
      double cost = sum_[k] == kForbidden ? kForbidden : share * (sum_[k] - least);
      double& lowest = message_[member.place[k]];
      lowest = cost < lowest ? cost : lowest;
    }
    for (size_t i = 0; i < message_.size(); ++i)
      message_[i] = message_[i] == kForbidden ? kForbidden : message_[i] - member.from_move[i];
    part.move->SetMessageFrom(part.member, message_);
  }
}

// Sends the costs of the other end's choices on this side, minus their minimum. Returns the
// minimum.
double Sweeps::Send(const Node& node, const Half& half) {
  const double* in = &messages_[half.in];
  double* out = &messages_[half.out];
  for (size_t k = 0; k < node.size; ++k) scratch_[k] = node.share * sum_[k] - in[k];
  const double* cost = core_.edges[half.edge].cost.data();
  uint32_t others = core_.variables[half.other].size();
  if (half.is_row) {
    MinOverRows(cost, node.size, others, scratch_.data(), out);
  } else {
    MinOverColumns(cost, others, node.size, scratch_.data(), out);
  }
  double least = *std::min_element(out, out + others);
  for (size_t k = 0; k < others; ++k) out[k] -= least;
  return least;
}

void Sweeps::Round(const Node& node, Rounding& rounding, bool keep_rows) {
  std::copy_n(&cost_[node.first], node.size, scratch_.begin());
  for (const Half& half : node.later) {
    const double* in = &messages_[half.in];
    for (size_t k = 0; k < node.size; ++k) scratch_[k] += in[k];
  }
  for (const Half& half : node.earlier) {
    EdgeView cost = core_.View(half.edge, node.variable);
    uint32_t taken = rounding.x[half.other];
    for (size_t k = 0; k < node.size; ++k) scratch_[k] += cost(k, taken);
  }
  for (const MovePart& part : node.parts) {
    const std::vector<double>& message =
        part.move->MessageToAfter(part.member, rounding.x, move_scratch_);
    const std::vector<uint32_t>& place = part.move->members()[part.member].place;
    for (size_t k = 0; k < node.size; ++k) scratch_[k] += message[place[k]];
  }
  if (keep_rows) ForbidOverruns(node);
  auto best = std::min_element(scratch_.begin(), scratch_.begin() + node.size);
  if (*best == kForbidden) rounding.possible = false;
  rounding.x[node.variable] = static_cast<uint32_t>(best - scratch_.begin());
  if (keep_rows) CountChoice(node, rounding.x[node.variable]);
}

// Excludes choices with which a row can no longer be kept.
void Sweeps::ForbidOverruns(const Node& node) {
  for (const CoreTerm& term : core_.variables[node.variable].terms) {
    auto [least, most] = std::ranges::minmax(term.amount);
    const CoreRow& row = core_.rows[term.row];
    const RowRange& range = ranges_[term.row];
    for (size_t k = 0; k < node.size; ++k) {
      if (range.least - least + term.amount[k] > row.hi ||
          range.most - most + term.amount[k] < row.lo)
        scratch_[k] = kForbidden;
    }
  }
}

void Sweeps::CountChoice(const Node& node, uint32_t choice) {
  for (const CoreTerm& term : core_.variables[node.variable].terms) {
    auto [least, most] = std::ranges::minmax(term.amount);
    ranges_[term.row].least += term.amount[choice] - least;
    ranges_[term.row].most += term.amount[choice] - most;
  }
}

double Sweeps::Run(bool rounds) {
  base_ = bound_;
  move_scratch_.work = 0;
  if (rounds) {
    ranges_ = whole_ranges_;
    rounded_.possible = true;
    kept_.possible = core_.HasTerms();
  }
  for (const Node& node : nodes_) {
    if (rounds) Round(node, rounded_, false);
    if (rounds && kept_.possible) Round(node, kept_, true);
    Gather(node);
    if (!node.parts.empty() && !GatherParts(node)) return bound_ = kForbidden;
    for (const Half& half : node.later) Send(node, half);
    SendToMoves(node, true);
  }
  double bound = core_.constant - price_error_;
  for (size_t r = 0; r < prices_.size(); ++r) {
    if (prices_[r] != 0)
      bound -= prices_[r] * (prices_[r] > 0 ? core_.rows[r].hi : core_.rows[r].lo);
  }
  for (size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    Gather(node);
    if (!node.parts.empty() && !GatherParts(node)) return bound_ = kForbidden;
    // The remaining cost of a move.
    for (const MovePart& part : node.parts) {
      if (node.variable == part.move->first())
        bound += part.move->members()[part.member].least_from_move;
    }
    double least = *std::min_element(sum_.begin(), sum_.begin() + node.size);
    bound += least;
    for (size_t k = 0; k < node.size; ++k) {
      sum_[k] -= least;
      excess_[node.first + k] = sum_[k];
    }
    for (const Half& half : node.earlier) bound += Send(node, half);
    SendToMoves(node, false);
  }
  move_work_ = move_scratch_.work;
  return bound_ = bound;
}

void Sweeps::Absorb(Core& core) const {
  for (const Node& node : nodes_) {
    std::vector<double>& cost = core.variables[node.variable].cost;
    for (const std::vector<Half>* side : {&node.earlier, &node.later}) {
      for (const Half& half : *side) {
        const double* in = &messages_[half.in];
        for (size_t k = 0; k < node.size; ++k) cost[k] += in[k];
        if (!half.is_row) continue;
        const double* out = &messages_[half.out];
        std::vector<double>& matrix = core.edges[half.edge].cost;
        uint32_t columns = core.variables[half.other].size();
        for (size_t r = 0; r < node.size; ++r) {
          for (size_t c = 0; c < columns; ++c) matrix[r * columns + c] -= in[r] + out[c];
        }
      }
    }
  }
}

}  // namespace heddle::search
