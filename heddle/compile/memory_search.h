// MemorySearch: which checkpointing makes a step fit into memory, and what each costs.
//
// A candidate is a policy of `checkpoint` as text. It is tried for good: the passes run, the rest of the pipeline behind them, and the
// graph that comes out is simulated. So its peak is the peak, to the byte, and its time has what the schedule hides.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/base/result.h"
#include "heddle/cost/cost_model.h"
#include "heddle/pass/pipeline.h"

namespace heddle {

struct MemoryChoice {
  std::string policy;
  Bytes peak;
  Nanos step;
  // On the compute stream, in addition to what a step without recomputation has there.
  Nanos recompute;
  // Of values that forward makes and something behind it reads.
  Bytes kept;
  // Nodes.
  int64_t recomputed = 0;
};

nlohmann::ordered_json ToJson(const MemoryChoice& choice);
// A table with a line for each.
std::string FormatChoices(const std::vector<MemoryChoice>& choices);

// As flags give it: above nothing, and with a unit.
Result<Bytes> ParseBudget(std::string_view text);
// What is to run for a policy, in front of the rest of a pipeline.
std::string CheckpointPipeline(std::string_view policy);

class MemorySearch {
 public:
  // `lowered` has one local graph; `after` is what runs behind the decisions. All outlive this.
  MemorySearch(const Module& lowered, const Pipeline& after, const CostModel& model);

  // The fastest candidate whose peak is at most `budget`. Diag::kInfeasible, with the least peak there is, if none is.
  Result<MemoryChoice> Within(Bytes budget);
  // From the largest peak to the smallest, without those that need more memory and more time than another.
  Result<std::vector<MemoryChoice>> Sweep();

 private:
  // Policies from the fastest to the smallest.
  static constexpr std::string_view kLevels[] = {"none", "min-cut", "selective", "full"};

  // `small` for the first `blocks` of them, `fast` for the others.
  Result<const MemoryChoice*> Try(std::string_view fast, std::string_view small, int64_t blocks);
  bool IsFew() const { return blocks_ <= 8; }
  Result<MemoryChoice> Run(const std::string& policy) const;
  Status Mix(std::string_view fast, std::string_view small, Bytes budget);

  Module lowered_;
  const Pipeline& after_;
  const CostModel& model_;
  int64_t blocks_ = 0;
  // By policy: what was tried.
  std::map<std::string, MemoryChoice> tried_;
};

}  // namespace heddle
