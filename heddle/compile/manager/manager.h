// The pass manager: runs a pipeline, and checks every pass.
//
// A pipeline starts only if every rounding pass in it was requested by name (pipeline.h). A pass
// starts only if the module has the view that it needs. After each pass, the manager verifies the
// module, compares the result "changed" with the structural hash, and checks that the pass
// preserved everything it must (preserved.h). If a check fails or the pass crashes, the manager
// writes the module from before the pass to a file, with the command that reproduces the failure.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/manager/pipeline.h"
#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::compile {

struct ManagerOptions {
  // Folder for the module after each pass, as `step.0042.dce.changed.hd`. Empty: no dumps.
  std::string dump_dir;
  // Stops after N passes. Negative: runs all.
  int64_t stop_after = -1;
  // The number of passes that ran on the module before. Numbering continues from it.
  int64_t passes_before = 0;
  // Folder for reproducers.
  std::string reproducer_dir = ".";
  // Whether to count launches and memory before and after each pass.
  bool measure = false;
  // Whether to check passes. Trials that only need a cost skip the checks; their choice is compiled
  // again with checks.
  bool check = true;
  // Runs rounding passes even if they were not requested by name.
  bool allow_rounding = false;
  // Prices nodes for passes; must outlive the run. If null, passes that price nodes fail.
  const price::CostModel* costs = nullptr;
};

// The cost of a schedule: launched collectives, and the largest peak memory of any graph.
struct ScheduleCost {
  int64_t launches = 0;
  Bytes peak;
};

struct PassRecord {
  // Counts from 1, in the order of execution.
  int64_t number;
  std::string pass;
  Changed changed;
  std::vector<std::pair<std::string, int64_t>> stats;
  std::vector<Remark> remarks;
  // Time of the pass, without the manager's checks.
  Nanos time;
  // Set if the manager measures.
  ScheduleCost before = {};
  ScheduleCost after = {};
};

struct RunReport {
  std::vector<PassRecord> passes;
  Nanos total;
};

Result<RunReport> RunPipeline(Module& module, const Pipeline& pipeline,
                              const ManagerOptions& options = {});

}  // namespace heddle::compile
