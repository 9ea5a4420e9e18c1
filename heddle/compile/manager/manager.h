// The pass manager. It runs a pipeline and distrusts every pass in it.
//
// A pipeline starts only if every pass in it that may round was asked for by name (pipeline.h). A pass starts only if the
// module has the view that it needs. After the pass the manager checks that the module verifies, that the claim "changed"
// agrees with the structural hash in both directions, and that nothing is lost that a pass must preserve (preserved.h). If
// one of these checks fails, or the pass crashes, the manager writes the module from before the pass to a file, with the
// command that repeats the failure.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/manager/pipeline.h"
#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::compile {

struct ManagerOptions {
  // Where the module is written after each pass, as `step.0042.dce.changed.hd`. Empty: nowhere.
  std::string dump_dir;
  // Stops after so many passes. Negative: never.
  int64_t stop_after = -1;
  // How many passes ran on the module before. Numbers of passes go on from there.
  int64_t passes_before = 0;
  // Where reproducers are written.
  std::string reproducer_dir = ".";
  // Whether launches are counted, and memory worked out, before and after each pass.
  bool measure = false;
  // Whether passes are distrusted. Trials of which nothing but a cost is wanted go without: what they choose runs once more, with checks.
  bool check = true;
  // Runs passes that may round even if nobody asked for them by name.
  bool allow_rounding = false;
  // What passes price nodes by; it outlives the run. Null: a pass that prices nodes fails.
  const price::CostModel* costs = nullptr;
};

// What a schedule costs: collectives launched, and the largest peak of memory of any graph.
struct ScheduleCost {
  int64_t launches = 0;
  Bytes peak;
};

struct PassRecord {
  // From 1, in the order of execution.
  int64_t number;
  std::string pass;
  Changed changed;
  std::vector<std::pair<std::string, int64_t>> stats;
  std::vector<Remark> remarks;
  // Of the pass alone, without the checks of the manager.
  Nanos time;
  // If the manager measures.
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
