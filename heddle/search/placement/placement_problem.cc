#include "heddle/search/placement/placement_problem.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "heddle/core/base/text.h"

namespace heddle::search {
namespace {

// Maximum number of pairs of choices of all moves: some hundreds of megabytes and some seconds. The
// exact problem has at most the same number again.
constexpr size_t kMostPairs = size_t{3} << 23;
// Work of finding the steps of a move, of pricing a step or a call, and of reading a price
// (work_limit.h).
constexpr uint64_t kWorkOfMove = 1000;
constexpr uint64_t kWorkOfRow = 1000;
constexpr uint64_t kWorkOfPrice = 4;

}  // namespace

class PlacementProblemBuilder::Impl {
 public:
  Impl(const Graph& graph, const compile::Plan& plan, const Decisions& decisions,
       const WorkLimit& limit)
      : mesh_(plan.mesh), decisions_(decisions), limit_(limit), costs_(graph, plan.mesh) {
    for (const Decision& decision : decisions.all) size_.push_back(decision.choices.size());
  }

  Status Price(const price::CostModel& model) {
    HEDDLE_RETURN_IF_ERROR(CheckSize());
    RequestCalls();
    HEDDLE_RETURN_IF_ERROR(RequestMoves());
    HEDDLE_RETURN_IF_ERROR(costs_.Run(model));
    limit_.Spend(kWorkOfRow * costs_.row_count());
    for (auto& [key, table] : tables_) {
      table.prices.resize(table.rows.size() * table.columns.size());
      std::vector<PlacementId> columns = InOrder(table.columns);
      for (const auto& [from, row] : table.rows)
        costs_.MovePrices(key.first, key.second, from, columns,
                          &table.prices[row * columns.size()]);
    }
    return Done{};
  }

  Result<PairwiseProblem> Add(const price::MoveShares& counted, const ChoiceSets* choices) {
    counted_ = counted;
    choices_ = choices;
    out_ = {};
    for (auto& [key, table] : tables_) table.discounted.clear();
    for (size_t d = 0; d < decisions_.all.size(); ++d) AddVariable(d);
    AddCasts();
    for (size_t d = 0; choices_ != nullptr && d < size_.size(); ++d) {
      std::vector<double>& cost = out_.variables[VariableId(d)].cost;
      cost = Select(cost, (*choices_)[d]);
    }
    for (const auto& [move, count] : decisions_.moves) {
      AddMove(move, count);
      if (limit_.Spent()) return TooManyChoices(mesh_);
    }
    return std::move(out_);
  }

 private:
  // --- Prices

  // Prices of all moves of one type in one order: a row per source placement, and a column per
  // target.
  struct MoveTable {
    std::map<PlacementId, uint32_t> rows = {};
    std::map<PlacementId, uint32_t> columns = {};
    std::vector<double> prices = {};
    // Discounted prices by share, in whole nanoseconds.
    std::map<double, std::vector<double>> discounted = {};

    const double* Row(PlacementId from, double share = 1) {
      const std::vector<double>& left = share == 1 ? prices : Discounted(share);
      return &left[rows.at(from) * columns.size()];
    }
    const std::vector<double>& Discounted(double share) {
      auto [at, added] = discounted.try_emplace(share, prices);
      for (size_t i = 0; added && i < prices.size(); ++i)
        at->second[i] = prices[i] == kForbidden ? kForbidden : std::round(prices[i] * share);
      return at->second;
    }
  };

  // A target placement, and its column in a table.
  struct Goal {
    PlacementId to;
    uint32_t column;
  };
  struct Outline {
    SharedMove move = {};
    // Source and target placements, in the order of their indices.
    std::vector<PlacementId> places = {};
    std::vector<Goal> goals = {};
    bool is_shared = false;
  };

  static std::vector<PlacementId> InOrder(const std::map<PlacementId, uint32_t>& numbers) {
    std::vector<PlacementId> out(numbers.size());
    for (const auto& [id, number] : numbers) out[number] = id;
    return out;
  }

  Status CheckSize() {
    size_t pairs = 0;
    for (const auto& [move, count] : decisions_.moves) {
      for (size_t i = 0; i < move.to.size(); ++i) {
        if (i == 0 || move.to[i].decision != move.to[i - 1].decision)
          pairs += size_[move.from.decision] * size_[move.to[i].decision];
      }
      if (pairs > kMostPairs)
        return Error(Diag::kProblem,
                     "more than {} pairs of choices on the mesh [{}]; fix some placements, or use "
                     "fewer axes",
                     WithCommas(kMostPairs), Format(mesh_));
    }
    return Done{};
  }

  Status RequestMoves() {
    auto number = [](std::map<PlacementId, uint32_t>& all, PlacementId id) {
      all.try_emplace(id, static_cast<uint32_t>(all.size()));
    };
    for (const auto& [move, count] : decisions_.moves) {
      MoveTable& table = tables_[{move.type, move.order}];
      for (PlacementId id : PlacementsAt(move.from)) number(table.rows, id);
      for (const Slot& slot : move.to) {
        for (PlacementId id : PlacementsAt(slot)) number(table.columns, id);
      }
    }
    for (auto& [key, table] : tables_) {
      std::vector<PlacementId> columns = InOrder(table.columns);
      for (const auto& [from, row] : table.rows) {
        costs_.RequestMoves(key.first, key.second, from, columns);
        limit_.Spend(kWorkOfMove * columns.size());
        if (limit_.Spent()) return TooManyChoices(mesh_);
      }
    }
    return Done{};
  }

  void RequestCalls() {
    for (size_t d = 0; d < decisions_.all.size(); ++d) {
      const Decision& decision = decisions_.all[d];
      std::vector<CostTable::CallId>& calls = calls_.emplace_back();
      if (decision.kind != Decision::Kind::kNode) continue;
      for (const compile::OpSplit& split : decision.choices)
        calls.push_back(costs_.RequestCall(NodeId(decision.members[0]), split));
    }
    for (const auto& [cast, example] : decisions_.casts) {
      for (const compile::OpSplit& choice : decisions_.all[cast.decision].choices) {
        const Placement& at = choice.results[0];
        casts_.push_back(costs_.RequestCall(example.first, {{at}, {at}}));
      }
    }
  }

  double ShareOf(const heddle::search::Move& move) const {
    if (move.order == compile::ReduceOrder::kScatterFirst) return counted_.gradients;
    bool gather = decisions_.all[move.to[0].decision].kind == Decision::Kind::kCompute;
    return gather ? counted_.gathers : counted_.tensors;
  }

  // Placements by choice of the slot's decision.
  const std::vector<PlacementId>& PlacementsAt(const Slot& slot) {
    auto [at, added] = placements_at_.try_emplace(slot);
    for (size_t c = 0; added && c < size_[slot.decision]; ++c)
      at->second.push_back(costs_.Intern(At(decisions_.all, slot, c)));
    return at->second;
  }

  // --- The problem

  double PriceOf(CostTable::CallId call, int64_t count) const {
    return static_cast<double>((costs_.Price(call) * count).value);
  }

  void AddVariable(size_t d) {
    const Decision& decision = decisions_.all[d];
    PairwiseVariable variable{decision.pattern, std::vector<double>(decision.choices.size())};
    for (size_t c = 0; c < calls_[d].size(); ++c)
      variable.cost[c] = PriceOf(calls_[d][c], static_cast<int64_t>(decision.members.size()));
    out_.variables.Add(std::move(variable));
  }

  void AddCasts() {
    size_t next = 0;
    for (const auto& [cast, example] : decisions_.casts) {
      for (double& cost : out_.variables[VariableId(cast.decision)].cost)
        cost += PriceOf(casts_[next++], example.second);
    }
  }

  // Returns the readers of a tensor, with the placements that their choices want. `number` gets an
  // index per placement.
  std::vector<SharedReader> ReadersOf(const heddle::search::Move& move,
                                      std::map<PlacementId, uint32_t>& number) {
    for (const Slot& slot : move.to) {
      for (PlacementId id : PlacementsAt(slot)) number.try_emplace(id);
    }
    uint32_t next = 0;
    for (auto& [id, n] : number) n = next++;
    std::map<uint32_t, std::vector<std::vector<uint32_t>>> wanted;
    for (const Slot& slot : move.to) {
      std::vector<std::vector<uint32_t>>& by_choice = wanted[slot.decision];
      by_choice.resize(size_[slot.decision]);
      const std::vector<PlacementId>& ids = PlacementsAt(slot);
      for (size_t c = 0; c < ids.size(); ++c) {
        uint32_t to = number.at(ids[c]);
        if (std::ranges::find(by_choice[c], to) == by_choice[c].end()) by_choice[c].push_back(to);
      }
    }
    std::vector<SharedReader> readers;
    for (const auto& [decision, by_choice] : wanted) readers.emplace_back(decision, by_choice);
    return readers;
  }

  // Returns everything about a move except its prices, which depend on shares.
  const Outline& OutlineOf(const heddle::search::Move& move) {
    auto [at, added] = outlines_.try_emplace(&move);
    Outline& outline = at->second;
    if (!added) return outline;
    outline.move.from = move.from.decision;
    std::map<PlacementId, uint32_t> number;
    outline.move.readers = ReadersOf(move, number);
    MoveTable& table = tables_.at({move.type, move.order});
    for (const auto& [to, n] : number) outline.goals.push_back({to, table.columns.at(to)});
    std::map<PlacementId, uint32_t> sources;
    for (PlacementId id : PlacementsAt(move.from)) {
      auto [place, is_new] = sources.try_emplace(id, static_cast<uint32_t>(sources.size()));
      outline.move.sources.push_back(place->second);
      if (is_new) outline.places.push_back(id);
    }
    outline.is_shared = IsShared(outline, table);
    return outline;
  }

  void AddMove(const heddle::search::Move& move, int64_t count) {
    const Outline& outline = OutlineOf(move);
    MoveTable& table = tables_.at({move.type, move.order});
    MovePrices prices{outline.goals.size()};
    for (PlacementId from : outline.places)
      AddPrices(from, move, count, table.Row(from, ShareOf(move)), outline.goals, prices.all);
    limit_.Spend(kWorkOfPrice * prices.all.size());
    SharedMove out = outline.move;
    if (choices_ != nullptr) out = KeepChoices(std::move(out), *choices_);
    out.prices = std::make_shared<const MovePrices>(std::move(prices));
    if (outline.is_shared) {
      out_.moves.push_back(std::move(out));
      return;
    }
    for (SharedReader& reader : out.readers)
      out_.moves.push_back({out.from, out.sources, {std::move(reader)}, out.prices});
  }

  // Adds the prices of redistributing the tensor from a placement to each target, in order.
  void AddPrices(PlacementId from, const heddle::search::Move& move, int64_t count,
                 const double* row, const std::vector<Goal>& goals,
                 std::vector<double>& out) const {
    for (const Goal& goal : goals) {
      bool adds =
          move.keeps_sums && !std::ranges::includes(costs_[goal.to].partials, costs_[from].partials,
                                                    {}, &Partial::axis, &Partial::axis);
      out.push_back(adds ? kForbidden : row[goal.column] * static_cast<double>(count));
    }
  }

  // Whether two readers may save by wanting the same placement. Decided at full prices, so that all
  // problems share the same moves.
  static bool IsShared(const Outline& outline, MoveTable& table) {
    std::vector<size_t> readers = WantedBy(outline.move.readers, outline.goals.size());
    for (PlacementId from : outline.places) {
      const double* row = table.Row(from);
      for (size_t to = 0; to < outline.goals.size(); ++to) {
        if (readers[to] > 1 && row[outline.goals[to].column] > 0) return true;
      }
    }
    return false;
  }

  const Mesh& mesh_;
  const Decisions& decisions_;
  WorkLimit limit_;
  CostTable costs_;
  // The requested shares and choices (null: all).
  price::MoveShares counted_;
  const ChoiceSets* choices_ = nullptr;
  std::vector<size_t> size_;
  std::map<Slot, std::vector<PlacementId>> placements_at_;
  std::map<std::pair<TypeId, compile::ReduceOrder>, MoveTable> tables_;
  // By decision and choice; and of all casts, one choice after the other.
  std::vector<std::vector<CostTable::CallId>> calls_;
  std::vector<CostTable::CallId> casts_;
  std::map<const heddle::search::Move*, Outline> outlines_;
  PairwiseProblem out_;
};

PlacementProblemBuilder::PlacementProblemBuilder(const Graph& graph, const compile::Plan& plan,
                                                 const Decisions& decisions,
                                                 std::unique_ptr<Impl> impl)
    : graph_(&graph), plan_(&plan), decisions_(&decisions), impl_(std::move(impl)) {}
PlacementProblemBuilder::PlacementProblemBuilder(PlacementProblemBuilder&&) noexcept = default;
PlacementProblemBuilder::~PlacementProblemBuilder() = default;

Result<PlacementProblemBuilder> PlacementProblemBuilder::Make(const Graph& graph,
                                                              const compile::Plan& plan,
                                                              const Decisions& decisions,
                                                              const price::CostModel& model,
                                                              const WorkLimit& limit) {
  auto impl = std::make_unique<Impl>(graph, plan, decisions, limit);
  HEDDLE_RETURN_IF_ERROR(impl->Price(model));
  return PlacementProblemBuilder(graph, plan, decisions, std::move(impl));
}

Result<PairwiseProblem> PlacementProblemBuilder::Build(const price::MoveShares& shares,
                                                       const ChoiceSets* choices) {
  HEDDLE_TRY(PairwiseProblem out, impl_->Add(shares, choices));
  // Smaller shares cannot make costs larger, so only full prices are checked.
  if (!(shares == price::MoveShares{})) return out;
  Diagnostics mistakes = FindErrors(out);
  if (!mistakes.empty()) return Failure{std::move(mistakes)};
  return out;
}

PairwiseBudget PlacementProblemBuilder::Memory(const MemoryLimit& limit) const {
  return MemoryRow(*graph_, plan_->mesh, *decisions_, limit);
}

}  // namespace heddle::search
