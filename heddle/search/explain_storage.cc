#include "heddle/search/explain_storage.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "heddle/compile/plan/patterns.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"

namespace heddle::search {
namespace {

constexpr size_t kMostReasons = 3;

class StorageExplainer {
 public:
  StorageExplainer(AutoPlanner& planner, const Graph& graph, const AutoPlanner::Request& request)
      : planner_(planner), graph_(graph), request_(request) {}

  Result<StorageExplanation> Run(const compile::Plan& plan, std::string_view label) {
    HEDDLE_TRY(uint32_t store, Find(label));
    const Decision& decision = planner_.decisions().all[store];
    HEDDLE_TRY(AutoPlan best, planner_.Solve(request_));
    StorageExplanation out{plan.mesh, decision.pattern, decision.members.size()};
    const Input& first = graph_.inputs()[decision.members[0]];
    out.rank = graph_.types().rank(graph_.type(first.value));
    for (const compile::PlanParam& rule : plan.params) {
      if (compile::MatchesPattern(rule.pattern, first.label)) out.line = rule.line;
    }
    out.alternatives.push_back(Describe(store, best, best));
    for (uint32_t c = 0; c < decision.choices.size(); ++c) {
      if (c == best.x[store]) continue;
      HEDDLE_TRY(StorageAlternative other, Alternative(store, c, best));
      out.alternatives.push_back(std::move(other));
    }
    std::ranges::stable_sort(
        out.alternatives.begin() + 1, out.alternatives.end(), {},
        [](const StorageAlternative& a) { return std::pair(!a.possible, a.cost); });
    return out;
  }

 private:
  Result<uint32_t> Find(std::string_view label) const {
    const std::vector<Decision>& all = planner_.decisions().all;
    std::vector<std::string_view> names;
    for (uint32_t d = 0; d < all.size(); ++d) {
      if (all[d].kind != Decision::Kind::kStore) continue;
      for (uint32_t member : all[d].members) names.push_back(graph_.inputs()[member].label);
      if (all[d].pattern == label || std::ranges::any_of(all[d].members, [&](uint32_t member) {
            return graph_.inputs()[member].label == label;
          }))
        return d;
    }
    return Error(Diag::kUsage, "--explain: the model has no parameter `{}`{}", label,
                 NearestHint(label, names));
  }

  Result<StorageAlternative> Alternative(uint32_t store, uint32_t choice, const AutoPlan& best) {
    AutoPlanner::Request request = request_;
    request.demands.push_back({VariableId(store), "what if", {choice}});
    Result<AutoPlan> solved = planner_.Solve(request);
    if (solved.ok()) return Describe(store, *solved, best);
    if (solved.diagnostics()[0].kind != Diag::kInfeasible) return std::move(solved).failure();
    return StorageAlternative{.store = At({store, true, 0}, choice)};
  }

  const Placement& At(const Slot& slot, uint32_t choice) const {
    return heddle::search::At(planner_.decisions().all, slot, choice);
  }

  StorageAlternative Describe(uint32_t store, const AutoPlan& solved, const AutoPlan& best) const {
    const std::vector<uint32_t>& x = solved.x;
    StorageAlternative out{.store = At({store, true, 0}, x[store]),
                           .compute = At({store + 1, true, 0}, x[store + 1]),
                           .possible = true,
                           .cost = solved.objective};
    std::map<std::string, double> more;
    AddCosts(x, 1, more);
    AddCosts(best.x, -1, more);
    for (const auto& [what, nanos] : more) {
      if (nanos != 0) out.because.push_back({what, {static_cast<int64_t>(nanos)}});
    }
    std::ranges::stable_sort(out.because, std::greater<>(),
                             [](const CostDifference& d) { return std::abs(d.more.value); });
    if (out.because.size() > kMostReasons) out.because.resize(kMostReasons);
    return out;
  }

  // Adds up the costs of an assignment by their reasons.
  void AddCosts(const std::vector<uint32_t>& x, double sign,
                std::map<std::string, double>& sums) const {
    const PairwiseProblem& problem = planner_.last_problem();
    for (size_t v = 0; v < problem.variables.size(); ++v)
      sums[NameOf(v)] += sign * problem.variables[VariableId(v)].cost[x[v]];
    // A shared move is attributed to its first reader.
    for (const SharedMove& move : planner_.last_problem().moves) {
      move.ForEachCopy(x, [&](uint32_t reader, double price) {
        sums[NameOf(move.from, reader)] += sign * price;
      });
    }
  }

  std::string NameOf(size_t v) const {
    const std::vector<Decision>& all = planner_.decisions().all;
    const Decision& decision = all[v];
    if (decision.kind != Decision::Kind::kNode) return fmt::format("casts of {}", decision.pattern);
    NodeId node(decision.members[0]);
    return fmt::format("{} of {} in {}", graph_.op(node).name(),
                       decision.pattern.empty() ? "the model" : decision.pattern,
                       Name(graph_[node].phase));
  }
  std::string NameOf(size_t from, size_t reader) const {
    const std::vector<Decision>& all = planner_.decisions().all;
    auto is_store = [&](size_t d) { return all[d].kind == Decision::Kind::kStore; };
    if (is_store(from) && all[reader].kind == Decision::Kind::kCompute)
      return fmt::format("gathers of {}", all[from].pattern);
    if (is_store(from) || is_store(reader))
      return fmt::format("the gradient of {}", all[is_store(from) ? from : reader].pattern);
    return fmt::format("moves into {}", NameOf(reader));
  }

  AutoPlanner& planner_;
  const Graph& graph_;
  const AutoPlanner::Request& request_;
};

std::string FormatMore(Nanos more) {
  return fmt::format("{}{}", more.value < 0 ? "-" : "+", Format(Nanos{std::abs(more.value)}));
}

}  // namespace

Result<StorageExplanation> ExplainStorage(AutoPlanner& planner, const Graph& graph,
                                          const compile::Plan& plan, std::string_view label,
                                          const AutoPlanner::Request& request) {
  return StorageExplainer(planner, graph, request).Run(plan, label);
}

std::string Format(const StorageExplanation& explanation) {
  std::string out =
      fmt::format("{}, {}", explanation.pattern, Counted(explanation.members, "parameter"));
  if (explanation.line != 0)
    out += fmt::format("; line {} of the plan states it", explanation.line);
  TextTable table({"store", "compute", "all costs>", "more>", "because"});
  const StorageAlternative& best = explanation.alternatives[0];
  for (const StorageAlternative& other : explanation.alternatives) {
    std::string store = FormatPlacement(other.store, explanation.rank, explanation.mesh);
    if (!other.possible) {
      table.AddRow({store, "", "", "", "not possible with the rest"});
      continue;
    }
    std::vector<std::string> because;
    for (const CostDifference& d : other.because)
      because.push_back(fmt::format("{} {}", d.what, FormatMore(d.more)));
    if (&other == &best) because = {"chosen"};
    because.resize(std::max<size_t>(because.size(), 1));
    table.AddRow({store, FormatPlacement(other.compute, explanation.rank, explanation.mesh),
                  Format(other.cost), &other == &best ? "" : FormatMore(other.cost - best.cost),
                  because[0]});
    // Further reasons are on lines of their own, which fit a terminal.
    for (size_t i = 1; i < because.size(); ++i) table.AddRow({"", "", "", "", because[i]});
  }
  return out + "\n\n" + table.Format();
}

nlohmann::ordered_json ToJson(const StorageExplanation& explanation) {
  auto list = nlohmann::ordered_json::array();
  for (const StorageAlternative& other : explanation.alternatives) {
    nlohmann::ordered_json entry = {
        {"store", FormatPlacement(other.store, explanation.rank, explanation.mesh)},
        {"possible", other.possible}};
    if (other.possible) {
      entry["compute"] = FormatPlacement(other.compute, explanation.rank, explanation.mesh);
      entry["cost_ms"] = Millis(other.cost);
      entry["more_ms"] = Millis(other.cost - explanation.alternatives[0].cost);
      auto because = nlohmann::ordered_json::array();
      for (const CostDifference& d : other.because)
        because.push_back({{"what", d.what}, {"more_ms", Millis(d.more)}});
      entry["because"] = std::move(because);
    }
    list.push_back(std::move(entry));
  }
  nlohmann::ordered_json out = {{"pattern", explanation.pattern},
                                {"parameters", explanation.members}};
  if (explanation.line != 0) out["line"] = explanation.line;
  out["alternatives"] = std::move(list);
  return out;
}

}  // namespace heddle::search
