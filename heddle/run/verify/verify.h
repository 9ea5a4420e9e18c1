// Verification: trains a job two ways and compares every bit after every step. At the first difference it finds where it came from.
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

// Where ranks are processes: what this one found goes in, what all found together comes out, on each of them.
template <typename Finding>
using Share = std::function<Result<Finding>(Finding)>;

// Runs are made anew to look for the origin of a difference: from the beginning, so that nobody keeps old states.
using RunMaker = std::function<Result<std::unique_ptr<TrainingRun>>()>;
using SessionMaker = std::function<Result<std::unique_ptr<Session>>()>;

struct StepRow {
  int64_t step = 0;
  double loss = 0;
  Comparison comparison;
  // Instead, against PyTorch: the number of hashes that were compared, and the first that differs.
  size_t hashes = 0;
  std::optional<HashDifference> hash_difference = {};

  bool differs() const { return comparison.first || hash_difference; }
};

struct VerifyOptions {
  int64_t steps = 1;
  // The learning rate of a step; steps count from 1.
  std::function<double(int64_t step)> lr;
  // How many parameters the model has.
  size_t params = 0;
  SessionMaker graph;
  // What it is held against; one of them at most. None: the graph trains alone.
  RunMaker eager;
  SessionMaker other_graph;
  // Empty where all ranks are in this process.
  Share<Comparison> share_comparison;
  Share<std::optional<NodeFinding>> share_origin;
  // Called behind every step.
  std::function<Status(const Session&, const StepRow&)> on_step;
};

struct VerifyReport {
  // As far as it came: the last one may have a difference, or a loss that is not finite.
  std::vector<StepRow> rows;
  bool finite = true;
  // Where the difference, or the loss that is not finite, came from.
  std::optional<NodeFinding> origin;
  // Where two pipelines were compared: the first pass that changes bits, in words.
  std::optional<std::string> pass;
  // Against PyTorch: the fault of the initial weights; empty if they are right.
  std::string wrong_weights = {};

  bool differs() const {
    return !wrong_weights.empty() || (!rows.empty() && rows.back().differs());
  }
};

Result<VerifyReport> Verify(const VerifyOptions& options);

// The first pass of a pipeline after which training differs from that of the graph before it, within `steps` steps; none if the
// pipeline changes no bit. `manager` runs the passes; `make` compiles a graph for running.
Result<std::optional<std::string>> FirstDifferingPass(
    const Module& before, const compile::Pipeline& pipeline, const compile::ManagerOptions& manager,
    const VerifyOptions& options, int64_t steps,
    const std::function<Result<std::unique_ptr<Session>>(const Module&)>& make);

}  // namespace heddle::run
