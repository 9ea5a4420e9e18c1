// heddle solve: solves a pairwise problem and reports the optimality gap.
#include "heddle/search/solve/solve.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/search/solve/conflict.h"
#include "heddle/search/solve/problem/problem_file.h"

namespace heddle {
namespace {

// Work limit, in seconds, for explaining infeasibility after the time limit.
constexpr double kConflictSeconds = 2;

struct SolveCommand {
  static constexpr const char* kName = "solve";
  static constexpr const char* kSummary =
      "Find the best assignment of a pairwise problem and prove its optimality gap";
  static constexpr const char* kNote =
      "docs/solve.md describes problems and their files. Exit code 3: the problem is infeasible; "
      "4: no assignment was found within the time limit.";
  static constexpr const char* kExamples =
      "heddle solve problem.json.gz --time-limit=60s\n"
      "heddle solve problem.json --budget=memory=3 --json";

  std::string file;
  std::vector<std::string> budgets;
  std::string time_limit = "10s";
  bool json = false;

  void Declare(Flags& flags);
  Status Run(const Streams& streams) const;
};

// The result of one run, for printing.
struct Solved {
  const search::ProblemFile& file;
  const search::PairwiseAnswer& answer;
  Nanos reading;
  Nanos solving;
  // Set only if the problem is infeasible.
  std::optional<search::Conflict> conflict;
};

std::string Count(size_t n) { return WithCommas(static_cast<int64_t>(n)); }

// `memory=3`: 0 <= memory <= 3.
Status SetBudget(search::PairwiseProblem& problem, const std::string& text) {
  size_t equals = text.rfind('=');
  std::string name = text.substr(0, equals);
  std::string_view number =
      equals == std::string::npos ? "" : std::string_view(text).substr(equals + 1);
  double hi = 0;
  auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), hi);
  if (error != std::errc() || end != number.data() + number.size() ||
      !(hi >= 0 && hi <= search::kLargestNumber))
    return Error(Diag::kBudget,
                 "`{}` is not a budget; write a name and a number from 0 to {}, as in `memory=3`",
                 text, search::kLargestNumber);
  std::vector<std::string_view> names;
  for (search::PairwiseBudget& budget : problem.budgets) {
    names.push_back(budget.name);
    if (budget.name != name) continue;
    budget.lo = 0;
    budget.hi = hi;
    return Done{};
  }
  return Error(Diag::kBudget, "the problem has no budget `{}`{}", name, NearestHint(name, names));
}

std::string_view Name(search::SolveOutcome outcome) {
  switch (outcome) {
    case search::SolveOutcome::kProved: return "optimal";
    case search::SolveOutcome::kStopped: return "stopped";
    case search::SolveOutcome::kInfeasible: return "infeasible";
    case search::SolveOutcome::kNoAnswer: break;
  }
  return "unknown";
}

// JSON has no infinities; null represents them.
nlohmann::ordered_json Finite(double number) {
  return std::isfinite(number) ? nlohmann::ordered_json(number) : nlohmann::ordered_json();
}

nlohmann::ordered_json ToJson(const search::ProblemSize& size) {
  return {{"variables", size.variables},
          {"choices", size.choices},
          {"edges", size.edges},
          {"entries", size.entries}};
}

nlohmann::ordered_json ToJson(const search::Conflict& conflict) {
  return {{"budgets", conflict.budgets},     {"restrictions", conflict.restrictions},
          {"relations", conflict.relations}, {"edges", conflict.edges},
          {"variables", conflict.variables}, {"smallest", conflict.smallest}};
}

nlohmann::ordered_json ToJson(const Solved& solved) {
  const search::PairwiseAnswer& answer = solved.answer;
  const search::PairwiseProblem& problem = solved.file.problem;
  bool has_answer = std::isfinite(answer.objective);
  auto budgets = nlohmann::ordered_json::array();
  for (const search::PairwiseBudget& budget : problem.budgets) {
    budgets.push_back(
        {{"name", budget.name},
         {"lo", Finite(budget.lo)},
         {"hi", Finite(budget.hi)},
         {"used", has_answer ? Finite(search::Amount(budget, answer.x)) : Finite(NAN)}});
  }
  nlohmann::ordered_json out = {{"name", solved.file.name},
                                {"unit", solved.file.unit},
                                {"status", Name(answer.outcome)},
                                {"objective", Finite(answer.objective)},
                                {"bound", Finite(answer.bound)},
                                {"gap", Finite(answer.gap())},
                                {"tolerance", answer.tolerance},
                                {"x", nullptr},
                                {"seconds", Seconds(solved.solving)},
                                {"read_seconds", Seconds(solved.reading)},
                                {"budgets", budgets},
                                {"problem", ToJson(search::SizeOf(problem))},
                                {"reduced", ToJson(answer.counts.left)},
                                {"contracted", answer.counts.reduced.contracted},
                                {"eliminated", answer.counts.reduced.eliminated},
                                {"impossible", answer.counts.reduced.impossible},
                                {"dominated", answer.counts.reduced.dominated},
                                {"sweeps", answer.counts.sweeps},
                                {"joins", answer.counts.joins},
                                {"branches", answer.counts.branches}};
  if (has_answer) out["x"] = answer.x;
  if (solved.conflict) out["conflict"] = ToJson(*solved.conflict);
  return out;
}

std::string FormatSize(const search::ProblemSize& size) {
  return fmt::format("{} variables, {} choices, {} edges, {} matrix entries", Count(size.variables),
                     Count(size.choices), Count(size.edges), Count(size.entries));
}

std::string FormatBudgets(const Solved& solved) {
  TextTable table({"budget", "lo>", "used>", "hi>"});
  auto cell = [](double bound) { return std::isfinite(bound) ? fmt::format("{}", bound) : "-"; };
  for (const search::PairwiseBudget& budget : solved.file.problem.budgets)
    table.AddRow({budget.name, cell(budget.lo), cell(search::Amount(budget, solved.answer.x)),
                  cell(budget.hi)});
  return table.empty() ? "" : table.Format(2) + "\n";
}

std::string FormatSolved(const Solved& solved, const std::string& name) {
  const search::SearchCounts& counts = solved.answer.counts;
  const search::PairwiseAnswer& answer = solved.answer;
  std::string unit = solved.file.unit.empty() ? "" : " " + solved.file.unit;
  std::string out = fmt::format("{}\n", solved.file.name.empty() ? name : solved.file.name);
  out += fmt::format("  problem    {}\n", FormatSize(search::SizeOf(solved.file.problem)));
  out += fmt::format("  reduced to {}\n", FormatSize(counts.left));
  out += fmt::format(
      "             {} variables contracted, {} eliminated; {} choices impossible, {} "
      "dominated\n\n",
      Count(counts.reduced.contracted), Count(counts.reduced.eliminated),
      Count(counts.reduced.impossible), Count(counts.reduced.dominated));
  out += fmt::format("  objective  {}{}\n  bound      {}{}\n", answer.objective, unit, answer.bound,
                     unit);
  out += answer.proved() ? "  gap        0, proved optimal\n\n"
                         : fmt::format("  gap        {:.4g} %, stopped before it was closed\n\n",
                                       100 * answer.gap());
  out += FormatBudgets(solved);
  out += fmt::format("solved in {}: {} sweeps, {} joins, {} branches; read in {}\n",
                     Format(solved.solving), Count(counts.sweeps), Count(counts.joins),
                     Count(counts.branches), Format(solved.reading));
  return out;
}

void SolveCommand::Declare(Flags& flags) {
  flags.Positional("FILE", file,
                   "problem as JSON, optionally compressed with gzip, or - for standard input");
  flags.Option("--budget=NAME=HI", budgets,
               "replace the limits of a budget by 0 to HI, as in memory=3; repeatable");
  flags.Option("--time-limit", time_limit,
               "stop with the best assignment after this time, as in 500ms, 10s, 2min");
  flags.Switch(
      "--json", json,
      "print JSON: status, objective, bound, gap (0: proved optimal), x, seconds, budgets, "
      "sizes, counters and conflicts");
}

// Explains why the problem is infeasible.
Failure Explain(const Solved& solved, const std::string& name) {
  const search::PairwiseProblem& problem = solved.file.problem;
  Diagnostic diagnostic;
  if (solved.conflict) {
    diagnostic =
        MakeDiagnostic(Diag::kInfeasible, "no assignment is feasible; {}: {}",
                       solved.conflict->smallest ? "these conflict" : "some of these conflict",
                       Format(problem, *solved.conflict));
  } else {
    diagnostic = MakeDiagnostic(Diag::kNoAnswer,
                                "no assignment was found in {}; every one costs at least {}",
                                Format(solved.solving), solved.answer.bound);
  }
  diagnostic.file = name;
  return Failure{{diagnostic}};
}

Status SolveCommand::Run(const Streams& streams) const {
  HEDDLE_TRY(Nanos limit, ParseDuration(time_limit));
  Clock reading;
  HEDDLE_TRY(std::string bytes, ReadInput(file, streams));
  std::string name = InputName(file);
  HEDDLE_TRY(search::ProblemFile parsed, search::ParseProblem(std::move(bytes), name));
  for (const std::string& budget : budgets)
    HEDDLE_RETURN_IF_ERROR(SetBudget(parsed.problem, budget));
  Nanos read = reading.Elapsed();
  Clock solving;
  search::PairwiseAnswer answer = search::Solve(
      parsed.problem, {.limit = search::WorkLimit(search::WorkAmount::Clock(Seconds(limit)))});
  Solved solved{parsed, answer, read, solving.Elapsed(), std::nullopt};
  if (answer.outcome == search::SolveOutcome::kInfeasible)
    solved.conflict = search::FindConflict(
        parsed.problem, search::WorkLimit(search::WorkAmount::Work(kConflictSeconds)));
  bool has_answer = std::isfinite(answer.objective);
  if (json) {
    PrintJson(ToJson(solved), streams);
  } else if (has_answer) {
    streams.out << FormatSolved(solved, name);
  }
  if (!has_answer) return Explain(solved, name);
  return Done{};
}

}  // namespace

void AddSolve(CommandSet& commands) { commands.Add<SolveCommand>(); }

}  // namespace heddle
