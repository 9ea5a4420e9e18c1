#include "test/attack/judge.h"

#include <algorithm>
#include <sstream>

#include <nlohmann/json.hpp>

#include "heddle/cli/cli.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/core/base/file.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#if HEDDLE_TORCH
#include "test/attack/run_both.h"
#endif

namespace heddle {
namespace {

// Texts that only a wrong pass may cause. They tell the user that the compiler failed.
constexpr std::string_view kOurMistakes[] = {"after pass ", "[reproducer]", "[no-fixpoint]",
                                             "internal check", "compiler bug"};

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome RunHeddle(const std::vector<std::string>& args, const std::string& input = "") {
  std::ostringstream out;
  std::ostringstream err;
  auto in = [&]() -> Result<std::string> { return input; };
  int code = static_cast<int>(RunCommandLine(args, {in, out, err}));
  return {code, out.str(), err.str()};
}

bool Has(const std::vector<std::string>& args, std::string_view arg) {
  return std::ranges::find(args, arg) != args.end();
}

std::string JudgeRefusal(const std::vector<std::string>& args, const Outcome& outcome) {
  bool known = outcome.code == 0 || outcome.code == 1 || (args[0] == "diff" && outcome.code == 2) ||
               ((args[0] == "solve" || args[0] == "parallelize") &&
                (outcome.code == 3 || outcome.code == 4)) ||
               // A pass may have a memory limit.
               (outcome.code == 3 && outcome.err.find("[infeasible]") != std::string::npos);
  if (!known) return fmt::format("exit code {}", outcome.code);
  // `reduce` repeats the errors of passes.
  for (std::string_view text : kOurMistakes) {
    size_t at = args[0] == "reduce" ? std::string::npos : outcome.err.find(text);
    if (at == std::string::npos) continue;
    size_t begin = outcome.err.rfind('\n', at) + 1;
    return "reports an internal error: " +
           outcome.err.substr(begin, outcome.err.find('\n', at) - begin);
  }
  if (outcome.code == 1 && outcome.out.empty() && outcome.err.empty())
    return "fails without a message";
  return "";
}

#if HEDDLE_TORCH
// Whether a plan keeps the numbers of the graph. It does not if it divides gradients, or makes a
// false promise about a module.
bool KeepsNumbers(const std::vector<std::string>& args) {
  constexpr std::string_view kFlag = "--plan=";
  for (const std::string& arg : args) {
    if (!arg.starts_with(kFlag)) continue;
    Result<compile::Plan> plan = compile::ParsePlan(*ReadFile(arg.substr(kFlag.size())), "plan");
    return plan.ok() && !plan->average && plan->grad_divisor == 1.0 &&
           std::ranges::all_of(
               plan->modules, [](const compile::PlanModule& layer) { return layer.local.empty(); });
  }
  return true;
}
#endif

std::string JudgeGraph(const std::string& text) {
  Result<Module> module = ParseModule(text, "printed", Ops());
  if (!module.ok()) return "prints a graph that does not parse: " + module.diagnostics()[0].message;
  return Print(*module) == text ? "" : "prints a graph that prints differently after parsing";
}

}  // namespace

std::string Judge(const std::vector<std::string>& args, bool& accepted) {
  Outcome outcome = RunHeddle(args);
  accepted = outcome.code == 0;
  std::string fault = JudgeRefusal(args, outcome);
  if (!fault.empty() || !accepted) return fault;
  if (Has(args, "--json")) return nlohmann::json::accept(outcome.out) ? "" : "prints invalid JSON";
  if (args[0] != "opt" && args[0] != "parallelize" && args[0] != "reduce") return "";
  if (Has(args, "-o")) outcome.out = *ReadFile(args.back());
  fault = JudgeGraph(outcome.out);
  if (!fault.empty()) return fault;
  if (Has(args, "--pipeline=clean")) {
    Outcome again = RunHeddle({"opt", "-", "--pipeline=clean"}, outcome.out);
    if (again.code != 0 || again.out != outcome.out) return "cleaning twice is not cleaning once";
  }
#if HEDDLE_TORCH
  // Passes keep sums of small whole numbers exact, but not attention that is merged from parts.
  bool merges = outcome.out.find(Ops()[op::shard_merge_attention].name()) != std::string::npos;
  if (args[0] != "reduce" && KeepsNumbers(args))
    return WhatDiffers(*ReadFile(args[1]), outcome.out, args[0] == "opt" && !merges);
#endif
  return "";
}

}  // namespace heddle
