#include "heddle/auto/auto_problem.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "heddle/base/text.h"

namespace heddle {
namespace {

// Pairs of choices of all moves: some hundreds of megabytes, and some seconds.
constexpr size_t kMostPairs = size_t{1} << 23;

class ProblemMaker {
 public:
  ProblemMaker(const Graph& graph, const Plan& plan, const Decisions& decisions,
               const Deadline& deadline)
      : graph_(graph),
        mesh_(plan.mesh),
        decisions_(decisions),
        deadline_(deadline),
        sheet_(graph, plan.mesh) {
    for (const Decision& decision : decisions.all) size_.push_back(decision.choices.size());
  }

  Result<AutoProblem> Run(const CostModel& model) {
    // The same walk again and again: first to ask for prices, then to add them up.
    HEDDLE_RETURN_IF_ERROR(Walk());
    HEDDLE_RETURN_IF_ERROR(sheet_.Run(model));
    is_priced_ = true;
    AutoProblem out;
    HEDDLE_TRY(out.exact, Walk());
    shares_ = false;
    HEDDLE_TRY(out.apart, Walk());
    return out;
  }

 private:
  // --- Prices

  double Move(const heddle::Move& move, int64_t count, const Placement& from, const Placement& to) {
    PlacementId a = sheet_.Intern(from);
    PlacementId b = sheet_.Intern(to);
    if (a == b) return 0;
    if (move.keeps_sums &&
        !std::ranges::includes(to.partials, from.partials, {}, &Partial::axis, &Partial::axis))
      return kForbidden;
    std::optional<PriceSheet::Entry> entry = sheet_.AskMove(move.type, a, b, move.order);
    if (!entry) return kForbidden;
    return is_priced_ ? static_cast<double>((sheet_.Price(*entry) * count).value) : 0;
  }

  double Call(NodeId node, size_t decision, size_t choice, const OpSplit& split, int64_t count) {
    auto [at, added] = calls_.try_emplace({node, decision, choice});
    if (added) at->second = sheet_.AskCall(node, split);
    return is_priced_ ? static_cast<double>((sheet_.Price(at->second) * count).value) : 0;
  }

  // --- The problem

  Result<PairwiseProblem> Walk() {
    problem_ = {};
    matrices_.clear();
    entries_ = 0;
    for (size_t d = 0; d < decisions_.all.size(); ++d) AddVariable(d);
    for (const auto& [cast, example] : decisions_.casts) {
      std::vector<double>& cost = problem_.variables[VariableId(cast.decision)].cost;
      for (size_t c = 0; c < cost.size(); ++c) {
        const Placement& at = decisions_.all[cast.decision].choices[c].results[0];
        cost[c] += Call(example.first, cast.decision, c, {{at}, {at}}, example.second);
      }
    }
    for (const auto& [move, count] : decisions_.moves) {
      AddMove(move, count);
      if (deadline_.Passed()) return OutOfTime(mesh_);
      if (entries_ > kMostPairs)
        return Error(Diag::kProblem,
                     "more than {} pairs of choices on the mesh [{}]; fix some placements, or use "
                     "fewer axes",
                     WithCommas(kMostPairs), Format(mesh_));
    }
    for (auto& [pair, matrix] : matrices_) {
      MatrixId id = problem_.matrices.Add(std::move(matrix));
      problem_.edges.push_back({VariableId(pair.first), VariableId(pair.second), id});
    }
    return std::move(problem_);
  }

  void AddVariable(size_t d) {
    const Decision& decision = decisions_.all[d];
    PairwiseVariable variable{decision.pattern, std::vector<double>(decision.choices.size())};
    if (decision.kind == Decision::Kind::kNode) {
      for (size_t c = 0; c < decision.choices.size(); ++c)
        variable.cost[c] = Call(NodeId(decision.members[0]), d, c, decision.choices[c],
                                static_cast<int64_t>(decision.members.size()));
    }
    problem_.variables.Add(std::move(variable));
  }

  // Adds to the cost of a pair of choices.
  double& Entry(size_t a, size_t choice_a, size_t b, size_t choice_b) {
    if (a == b) return problem_.variables[VariableId(a)].cost[choice_a];
    if (a > b) {
      std::swap(a, b);
      std::swap(choice_a, choice_b);
    }
    auto [at, added] = matrices_.try_emplace({a, b});
    size_t columns = problem_.variables[VariableId(b)].cost.size();
    if (added) {
      at->second.assign(problem_.variables[VariableId(a)].cost.size() * columns, 0);
      entries_ += at->second.size();
    }
    return at->second[choice_a * columns + choice_b];
  }

  // The placements that each choice of one reader wants, each once.
  struct Reader {
    uint32_t decision;
    std::vector<std::vector<PlacementId>> wants;
  };
  std::vector<Reader> ReadersOf(const heddle::Move& move) {
    std::vector<Reader> readers;
    for (const Slot& slot : move.to) {
      if (readers.empty() || readers.back().decision != slot.decision)
        readers.push_back(
            {slot.decision, std::vector<std::vector<PlacementId>>(size_[slot.decision])});
      for (size_t c = 0; c < size_[slot.decision]; ++c) {
        PlacementId id = sheet_.Intern(At(decisions_.all, slot, c));
        std::vector<PlacementId>& wants = readers.back().wants[c];
        if (std::ranges::find(wants, id) == wants.end()) wants.push_back(id);
      }
    }
    return readers;
  }

  void AddMove(const heddle::Move& move, int64_t count) {
    std::vector<Reader> readers = ReadersOf(move);
    std::map<PlacementId, std::set<size_t>> wanted_by;
    for (size_t r = 0; r < readers.size(); ++r) {
      for (const auto& wants : readers[r].wants) {
        for (PlacementId id : wants) wanted_by[id].insert(r);
      }
    }
    for (const Reader& reader : readers) {
      for (size_t c = 0; c < reader.wants.size(); ++c) {
        for (PlacementId id : reader.wants[c]) {
          if (!shares_ || wanted_by[id].size() == 1) AddOwn(move, count, reader.decision, c, id);
        }
      }
    }
    for (const auto& [id, who] : wanted_by) {
      if (shares_ && who.size() > 1) AddShared(move, count, id, readers);
    }
  }

  // For one reader alone.
  void AddOwn(const heddle::Move& move, int64_t count, uint32_t reader, size_t choice,
              PlacementId to) {
    for (size_t c = 0; c < size_[move.from.decision]; ++c) {
      if (reader == move.from.decision && c != choice) continue;
      Entry(move.from.decision, c, reader, choice) +=
          Move(move, count, At(decisions_.all, move.from, c), Placement(sheet_[to]));
    }
  }

  // A variable of its own says whether the tensor is there for all who want it so.
  void AddShared(const heddle::Move& move, int64_t count, PlacementId to,
                 const std::vector<Reader>& readers) {
    auto copy = problem_.variables.Add({"", {0, 0}}).index();
    Placement target = sheet_[to];
    for (size_t c = 0; c < size_[move.from.decision]; ++c)
      Entry(move.from.decision, c, copy, 1) +=
          Move(move, count, At(decisions_.all, move.from, c), target);
    for (const Reader& reader : readers) {
      for (size_t c = 0; c < reader.wants.size(); ++c) {
        if (std::ranges::find(reader.wants[c], to) != reader.wants[c].end())
          Entry(reader.decision, c, copy, 0) = kForbidden;
      }
    }
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const Decisions& decisions_;
  const Deadline& deadline_;
  PriceSheet sheet_;
  bool is_priced_ = false;
  bool shares_ = true;
  std::vector<size_t> size_;
  std::map<std::tuple<NodeId, size_t, size_t>, PriceSheet::Entry> calls_;
  PairwiseProblem problem_;
  std::map<std::pair<size_t, size_t>, std::vector<double>> matrices_;
  size_t entries_ = 0;
};

// What a rank keeps of a tensor.
double LocalBytes(const Graph& graph, ValueId v, const Placement& placement, const Mesh& mesh) {
  std::span<const Dim> dims = graph.types().dims(graph.type(v));
  Dims bounds;
  for (Dim dim : dims) bounds.push_back(graph.types().symbols().Bound(dim));
  return static_cast<double>(LocalElements(bounds, placement, mesh)) *
         static_cast<double>(ItemSize(graph.types().dtype(graph.type(v))));
}

// Values of a decision that a rank keeps through the step.
class MemoryRow {
 public:
  MemoryRow(const Graph& graph, const Mesh& mesh, const Decisions& decisions)
      : graph_(graph), mesh_(mesh), decisions_(decisions) {}

  PairwiseBudget Make(Bytes bytes) {
    for (const Input& input : graph_.inputs()) {
      bool state = input.role == InputRole::kOpt;
      if (input.role != InputRole::kParam && !state) continue;
      uint32_t store = decisions_.of_param.at(input.index);
      const Input* param = graph_.FindParam(input.index);
      bool follows = !state || graph_.types().rank(graph_.type(param->value)) ==
                                   graph_.types().rank(graph_.type(input.value));
      if (follows) Add({store, true, 0}, input.value);
    }
    for (const Output& output : graph_.outputs()) {
      if (output.role == OutputRole::kGrad)
        Add({decisions_.of_param.at(output.index), true, 0}, output.value);
    }
    AddSaved();
    PairwiseBudget budget;
    budget.name = "memory";
    budget.hi = static_cast<double>(bytes.value);
    for (auto& [decision, amounts] : amounts_)
      budget.terms.push_back({VariableId(decision), std::move(amounts)});
    return budget;
  }

 private:
  void Add(const Slot& slot, ValueId v) {
    const Decision& decision = decisions_.all[slot.decision];
    std::vector<double>& amounts = amounts_[slot.decision];
    amounts.resize(decision.choices.size());
    for (size_t c = 0; c < amounts.size(); ++c)
      amounts[c] += LocalBytes(graph_, v, At(decisions_.all, slot, c), mesh_);
  }

  // What forward makes and backward reads. Views take no memory of their own.
  void AddSaved() {
    std::set<ValueId> saved;
    for (NodeId node : graph_.nodes()) {
      if (graph_[node].phase != Phase::kBackward) continue;
      for (ValueId v : graph_.operands(node)) {
        NodeId producer = v ? graph_[v].producer : NodeId();
        if (producer && graph_[producer].phase == Phase::kForward &&
            graph_.op(producer).effect() != Effect::kView)
          saved.insert(v);
      }
    }
    for (ValueId v : saved) {
      NodeId producer = graph_[v].producer;
      uint32_t decision = decisions_.of_node[producer.index()];
      if (decision != Decisions::kNone)
        Add({decision, true, v.index() - graph_[producer].first_result.index()}, v);
    }
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const Decisions& decisions_;
  std::map<uint32_t, std::vector<double>> amounts_;
};

}  // namespace

Result<AutoProblem> MakeAutoProblem(const Graph& graph, const Plan& plan,
                                    const Decisions& decisions, const CostModel& model,
                                    const std::optional<Bytes>& memory, const Deadline& deadline) {
  HEDDLE_TRY(AutoProblem out, ProblemMaker(graph, plan, decisions, deadline).Run(model));
  for (PairwiseProblem* problem : {&out.exact, &out.apart}) {
    if (memory) problem->budgets.push_back(MemoryRow(graph, plan.mesh, decisions).Make(*memory));
    Diagnostics mistakes = FindErrors(*problem);
    if (!mistakes.empty()) return Failure{std::move(mistakes)};
  }
  return out;
}

void SetCopies(const PairwiseProblem& problem, const Decisions& decisions,
               std::vector<uint32_t>& x) {
  x.resize(decisions.all.size());
  // All of them, anew.
  x.resize(problem.variables.size(), 0);
  for (const PairwiseEdge& edge : problem.edges) {
    // A copy stands behind what it is a copy of, and has two choices: not to be there, or to be there.
    if (edge.v.index() < decisions.all.size()) continue;
    if (problem.matrices[edge.matrix][size_t{x[edge.u.index()]} * 2] == kForbidden)
      x[edge.v.index()] = 1;
  }
}

}  // namespace heddle
