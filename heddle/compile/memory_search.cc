#include "heddle/compile/memory_search.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "heddle/base/text.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/memory/blocks.h"
#include "heddle/passes/passes.h"
#include "heddle/report/summary.h"
#include "heddle/report/table.h"
#include "heddle/sim/timeline/replay.h"

namespace heddle {
namespace {

constexpr double kThousandths = 1000;

bool IsFaster(const MemoryChoice& a, const MemoryChoice& b) {
  if (a.step != b.step) return a.step < b.step;
  return a.peak != b.peak ? a.peak < b.peak : a.policy < b.policy;
}

}  // namespace

Result<Bytes> ParseBudget(std::string_view text) {
  HEDDLE_TRY(Bytes budget, ParseBytes(text));
  if (budget <= Bytes{}) return Error(Diag::kUsage, "a budget of {} holds nothing", Format(budget));
  if (text.back() >= '0' && text.back() <= '9')
    return Error(Diag::kUsage, "a budget of `{}` has no unit, as in {}GiB", text, text);
  return budget;
}

std::string CheckpointPipeline(std::string_view policy) {
  return fmt::format("checkpoint{{policy={}}}, rematerialize", Quoted(policy));
}

MemorySearch::MemorySearch(const Module& lowered, const Pipeline& after, const CostModel& model)
    : lowered_(lowered), after_(after), model_(model) {
  blocks_ = Blocks(lowered_.graphs[0]).count();
}

Result<MemoryChoice> MemorySearch::Run(const std::string& policy) const {
  Module module = lowered_;
  HEDDLE_TRY(Pipeline pipeline,
             ParsePipeline("clean, " + CheckpointPipeline(policy), Passes(), Author::kProgram));
  pipeline.insert(pipeline.end(), after_.begin(), after_.end());
  HEDDLE_TRY(RunReport report, RunPipeline(module, pipeline));
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(GraphCosts costs, model_.Price(module, graph));
  SimGraph sim(graph, costs);
  double slowdown = model_.cluster().device.overlap_slowdown;
  Replay replay(sim, {.slowdown = static_cast<int64_t>(slowdown * kThousandths + 0.5)});
  MemoryChoice choice{.policy = policy,
                      .peak = replay.outcome().peak,
                      .step = replay.outcome().makespan,
                      .recompute = sim.compute(),
                      .kept = KeptForBackward(graph)};
  for (const PassRecord& record : report.passes) {
    if (record.pass != "rematerialize") continue;
    for (const auto& [stat, n] : record.stats) {
      if (stat == "copies") choice.recomputed += n;
    }
  }
  return choice;
}

Result<const MemoryChoice*> MemorySearch::Try(std::string_view fast, std::string_view small,
                                              int64_t blocks) {
  std::string policy(blocks == 0 ? fast : small);
  if (blocks > 0 && blocks < blocks_) policy = fmt::format("{}:{},{}", small, blocks, fast);
  auto known = tried_.find(policy);
  if (known == tried_.end()) {
    HEDDLE_TRY(MemoryChoice choice, Run(policy));
    // `none` is always tried first.
    if (!tried_.empty()) choice.recompute -= tried_.at("none").recompute;
    known = tried_.emplace(policy, std::move(choice)).first;
  }
  return &known->second;
}

// All numbers of blocks if there are few. Of many, equal ones, each takes time and gives memory: the fewest that fit are found.
Status MemorySearch::Mix(std::string_view fast, std::string_view small, Bytes budget) {
  if (IsFew()) {
    for (int64_t n = 1; n < blocks_; ++n) HEDDLE_RETURN_IF_ERROR(Try(fast, small, n));
    return Done{};
  }
  int64_t too_few = 0;
  int64_t enough = blocks_;
  while (enough - too_few > 1) {
    int64_t middle = too_few + (enough - too_few) / 2;
    HEDDLE_TRY(const MemoryChoice* choice, Try(fast, small, middle));
    (choice->peak <= budget ? enough : too_few) = middle;
  }
  return Done{};
}

Result<MemoryChoice> MemorySearch::Within(Bytes budget) {
  std::vector<Bytes> peaks;
  for (std::string_view level : kLevels) {
    HEDDLE_TRY(const MemoryChoice* choice, Try(level, level, 0));
    peaks.push_back(choice->peak);
  }
  for (size_t fast = 0; fast < peaks.size(); ++fast) {
    for (size_t small = fast + 1; small < peaks.size(); ++small) {
      if (!IsFew() && (peaks[fast] <= budget || peaks[small] > budget)) continue;
      HEDDLE_RETURN_IF_ERROR(Mix(kLevels[fast], kLevels[small], budget));
    }
  }
  const MemoryChoice* best = nullptr;
  const MemoryChoice* least = nullptr;
  for (const auto& [policy, choice] : tried_) {
    if (least == nullptr || choice.peak < least->peak) least = &choice;
    if (choice.peak <= budget && (best == nullptr || IsFaster(choice, *best))) best = &choice;
  }
  if (best == nullptr)
    return Error(Diag::kInfeasible,
                 "no checkpointing brings the step down to {} of each rank; the least is {}, with "
                 "policy {}, of which {} are kept for backward",
                 Format(budget), Format(least->peak), least->policy, Format(least->kept));
  MemoryChoice chosen = *best;
  if (chosen.policy == "none") chosen.recompute = {};
  return chosen;
}

Result<std::vector<MemoryChoice>> MemorySearch::Sweep() {
  constexpr int64_t kParts = 4;
  for (std::string_view level : kLevels) HEDDLE_RETURN_IF_ERROR(Try(level, level, 0));
  for (size_t fast = 0; fast < std::size(kLevels); ++fast) {
    for (size_t small = fast + 1; small < std::size(kLevels); ++small) {
      for (int64_t part = 1; part < kParts; ++part)
        HEDDLE_RETURN_IF_ERROR(Try(kLevels[fast], kLevels[small], blocks_ * part / kParts));
    }
  }
  std::vector<MemoryChoice> choices;
  for (const auto& [policy, choice] : tried_) choices.push_back(choice);
  for (MemoryChoice& choice : choices) {
    if (choice.policy == "none") choice.recompute = {};
  }
  std::ranges::sort(choices, IsFaster);
  std::vector<MemoryChoice> curve;
  for (MemoryChoice& choice : choices) {
    if (curve.empty() || choice.peak < curve.back().peak) curve.push_back(std::move(choice));
  }
  return curve;
}

nlohmann::ordered_json ToJson(const MemoryChoice& choice) {
  constexpr double kNanosPerMilli = 1e6;
  return {{"policy", choice.policy},
          {"peak_bytes", choice.peak.value},
          {"step_ms", static_cast<double>(choice.step.value) / kNanosPerMilli},
          {"recompute_ms", static_cast<double>(choice.recompute.value) / kNanosPerMilli},
          {"kept_bytes", choice.kept.value},
          {"recomputed", choice.recomputed},
          {"offloaded_bytes", 0}};
}

std::string FormatChoices(const std::vector<MemoryChoice>& choices) {
  TextTable table({"policy", "peak>", "step>", "recompute>", "nodes>", "kept>"});
  for (const MemoryChoice& choice : choices) {
    table.AddRow({choice.policy, Format(choice.peak), Format(choice.step), Format(choice.recompute),
                  fmt::format("{}", choice.recomputed), Format(choice.kept)});
  }
  return table.Format();
}

}  // namespace heddle
