// Verification: trains a job in two ways and compares every bit after every step. At the first
// difference, finds its origin.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "heddle/compile/manager/manager.h"
#include "heddle/run/train/session.h"
#include "heddle/run/verify/compare.h"
#include "heddle/run/verify/first_node.h"
#include "heddle/run/verify/step_hashes.h"

namespace heddle::run {

// Combines findings of processes: takes this process's finding and returns the combined one.
template <typename Finding>
using Share = std::function<Result<Finding>(Finding)>;

// Make a run from its start. The search for the origin of a difference repeats the run, so that no
// states need to be kept.
using RunMaker = std::function<Result<std::unique_ptr<TrainingRun>>()>;
using GraphRunMaker = std::function<Result<std::unique_ptr<GraphRun>>()>;

struct StepRow {
  int64_t step = 0;
  double loss = 0;
  Comparison comparison;
  // Against PyTorch, instead of `comparison`: the number of compared hashes, and the first
  // difference.
  size_t hashes = 0;
  std::optional<HashDifference> hash_difference = {};

  bool differs() const { return comparison.first || hash_difference; }
};

struct VerifyOptions {
  int64_t steps = 1;
  // Returns the learning rate of a step; steps count from 1.
  std::function<double(int64_t step)> lr;
  // Number of parameters of the model.
  size_t params = 0;
  GraphRunMaker graph;
  // The run to compare with; at most one is set. If none is, only the graph trains.
  RunMaker eager;
  GraphRunMaker other_graph;
  // Empty if all ranks are in this process.
  Share<Comparison> share_comparison;
  Share<std::optional<NodeFinding>> share_origin;
  // Called after every step.
  std::function<Status(const TrainingRun&, const StepRow&)> on_step;
};

struct VerifyReport {
  // One row per step until the end. The last one may have a difference, or a loss that is not
  // finite.
  std::vector<StepRow> rows;
  bool finite = true;
  // The origin of the difference, or of the loss that is not finite.
  std::optional<NodeFinding> origin;
  // When comparing two pipelines: the first pass that changes bits, as text.
  std::optional<std::string> pass;
  // Against PyTorch: the error in the initial weights; empty if they are right.
  std::string wrong_weights = {};

  bool differs() const {
    return !wrong_weights.empty() || (!rows.empty() && rows.back().differs());
  }
};

Result<VerifyReport> Verify(const VerifyOptions& options);

// Finds the first pass of a pipeline after which training differs within `steps` steps from
// training before it. Returns nullopt if no pass changes bits. `manager` runs the passes; `make`
// compiles a graph.
Result<std::optional<std::string>> FirstDifferingPass(
    const Module& before, const compile::Pipeline& pipeline, const compile::ManagerOptions& manager,
    const VerifyOptions& options, int64_t steps,
    const std::function<Result<std::unique_ptr<GraphRun>>(const Module&)>& make);

}  // namespace heddle::run
