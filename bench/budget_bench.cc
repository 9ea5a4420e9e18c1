// Compares memory budgets with fixed policies and with PyTorch's knapsack, on one lowered graph:
//
//   heddle plan --model=llama3 --flavor=8B ... --stage=lowered -o lowered.hd
//   heddle-budget-bench lowered.hd
//
// Tries twenty budgets between the smallest and the unconstrained peak. Exit code 1 if a budget is
// exceeded, if a larger budget gives a slower step, or if another policy that fits is faster.
#include <cstdio>

#include "bench/knapsack.h"
#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/file.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/search/memory/memory_search.h"

namespace heddle {
namespace {

constexpr int64_t kBudgets = 20;
constexpr const char* kPolicies[] = {"none",     "min-cut",   "layers:4", "layers:3",
                                     "layers:2", "selective", "full"};

// Returns the fastest choice that fits, or null.
const search::MemoryChoice* Best(const std::vector<const search::MemoryChoice*>& choices,
                                 Bytes budget) {
  const search::MemoryChoice* best = nullptr;
  for (const search::MemoryChoice* choice : choices) {
    if (choice->peak <= budget && (best == nullptr || choice->step < best->step)) best = choice;
  }
  return best;
}

std::string Time(const search::MemoryChoice* choice) {
  return choice == nullptr ? "-" : Format(choice->step);
}

Result<int> CompareBudgets(const char* path) {
  HEDDLE_TRY(std::string text, ReadFile(path));
  HEDDLE_TRY(Module module, ParseModule(std::move(text), path, Ops()));
  HEDDLE_RETURN_IF_ERROR(
      compile::RunPipeline(module, *compile::ParsePipeline("clean", compile::Passes())));
  HEDDLE_TRY(price::CostModel model, price::CostModel::Make(*price::LoadCluster("h100-8x"), {}));
  compile::Pipeline after = *compile::ParsePipeline("fsdp", compile::Passes());
  search::Trials trials(module, after, model);
  std::vector<const search::MemoryChoice*> fixed;
  for (const char* policy : kPolicies) {
    HEDDLE_TRY(search::Marks marks, trials.MarksOf(policy));
    HEDDLE_TRY(const search::MemoryChoice* choice, trials.Try(policy, marks));
    fixed.push_back(choice);
  }
  HEDDLE_TRY(search::RunTimes times, search::FindRunTimes(module, model));
  Weights weights(module.graphs[0]);
  KnapsackPolicy knapsack(module.graphs[0], weights, times.all);
  std::vector<const search::MemoryChoice*> packed;
  for (int64_t i = 0; i <= kBudgets; ++i) {
    double share = static_cast<double>(i) / kBudgets;
    HEDDLE_TRY(const search::MemoryChoice* choice,
               trials.Try(fmt::format("knapsack {:.2f}", share), knapsack.Decide(share)));
    packed.push_back(choice);
  }
  HEDDLE_TRY(auto sweeper, search::MemorySearch::Make(module, after, model));
  HEDDLE_TRY(std::vector<search::MemoryChoice> curve, sweeper->Sweep());
  Bytes most = fixed[0]->peak;
  Bytes least = curve.back().peak;
  fmt::print("{} nodes; unconstrained {}, smallest {}\n", module.graphs[0].node_count(),
             Format(most), Format(least));
  fmt::print("{:>12} {:>12} {:>10} {:>10} {:>10} {:>10} {:>7} {:>8}  {}\n", "budget", "peak",
             "step", "fixed", "knapsack", "bound", "trials", "search", "choice");
  int wrong = 0;
  Nanos last{INT64_MAX};
  for (int64_t i = 0; i < kBudgets; ++i) {
    Bytes budget = least + Bytes{(most - least).value / (kBudgets - 1) * i};
    Clock clock;
    HEDDLE_TRY(auto search, search::MemorySearch::Make(module, after, model));
    HEDDLE_TRY(search::MemoryChoice choice, search->FindWithin(budget));
    const search::MemoryChoice* policy = Best(fixed, budget);
    const search::MemoryChoice* other = Best(packed, budget);
    bool is_wrong = choice.peak > budget || choice.step > last ||
                    (policy != nullptr && policy->step < choice.step) ||
                    (other != nullptr && other->step < choice.step);
    wrong += is_wrong;
    last = choice.step;
    fmt::print("{:>12} {:>12} {:>10} {:>10} {:>10} {:>10} {:>7} {:>8}  {}{}\n", Format(budget),
               Format(choice.peak), Format(choice.step), Time(policy), Time(other),
               Format(choice.bound), search->trials().count(), Format(clock.Elapsed()),
               choice.policy, is_wrong ? "  WRONG" : "");
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "heddle-budget-bench LOWERED.hd\n");
    return 1;
  }
  heddle::Result<int> code = heddle::CompareBudgets(argv[1]);
  if (code.ok()) return *code;
  std::fprintf(stderr, "%s\n", heddle::Format(code.diagnostics()).c_str());
  return 1;
}
