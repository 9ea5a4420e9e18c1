// The pass manager. It runs a pipeline and distrusts every pass in it.
//
// Before a pipeline: what may round was asked for by name. Before a pass: the view is the one that the pass needs. After it: the
// module verifies, the claim "changed" agrees with the structural hash in both directions, and what every pass preserves
// is there (preserved.h). When one of these fails, or the pass crashes, the module as it was before the pass is written to
// a file, with the command that repeats the failure.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/base/units.h"
#include "heddle/pass/pass.h"
#include "heddle/pass/pipeline.h"

namespace heddle {

struct ManagerOptions {
  // Where the module goes after each pass, as `step.0042.dce.changed.hd`; nowhere if empty.
  std::string dump_dir;
  // Runs only so many passes; all if negative.
  int64_t stop_after = -1;
  // How many passes ran on the module before these: numbers go on from there.
  int64_t passes_before = 0;
  // Where a reproducer goes.
  std::string reproducer_dir = ".";
  // Runs passes that may round, also where nobody asked for them by name.
  bool allow_rounding = false;
};

struct PassRecord {
  // From 1, in the order of execution.
  int64_t number;
  std::string pass;
  Changed changed;
  std::vector<std::pair<std::string, int64_t>> stats;
  std::vector<Remark> remarks;
  // Of the pass alone, without what the manager adds.
  Nanos time;
};

struct RunReport {
  std::vector<PassRecord> passes;
  Nanos total;
};

Result<RunReport> RunPipeline(Module& module, const Pipeline& pipeline,
                              const ManagerOptions& options = {});

}  // namespace heddle
