// Flags of jobs. Each is declared once, for the option that it sets, with TorchTitan's name if it
// has one.
#pragma once

#include "heddle/api/loop_options.h"
#include "heddle/api/model_options.h"
#include "heddle/api/optimization_options.h"
#include "heddle/api/parallel_options.h"
#include "heddle/cli/cli.h"
#include "heddle/cli/flags/flags.h"

namespace heddle {

// Sections of the flags that describe a model. A job file for one model has these.
inline constexpr std::string_view kModelSections[] = {"Model", "Model sizes", "Batch and numerics"};

// The model, its sizes and initial weights.
void DeclareModel(Flags& flags, ModelOptions& model);
// Also batch, numerics and device. The default device is that of `cluster`, unless it is null.
void DeclareStep(Flags& flags, ModelOptions& model, const std::string* cluster = nullptr);
// The flag of exact mode (train/exact.h).
void DeclareDeterministic(Flags& flags, ModelOptions& model);
// The rule that updates parameters, and its numbers.
void DeclareOptimizer(Flags& flags, run::OptimizerOptions& optimizer);
// The same, and a flag that leaves the optimizer out of a captured step.
void DeclareOptimizer(Flags& flags, run::OptimizerOptions& optimizer, bool& without);
void DeclareParallelism(Flags& flags, ParallelOptions& parallel);
// Steps, seed, optimizer and runtime.
void DeclareTraining(Flags& flags, OptimizationOptions& options);
// Data, learning rate and validation, which decide the numbers of a run.
void DeclareLoop(Flags& flags, LoopOptions& loop);
// Checkpoints, metrics and faults.
void DeclareOutput(Flags& flags, LoopOptions& loop);

// These options, with the plan's text if it comes from standard input.
Result<ParallelOptions> WithPlan(ParallelOptions parallel, const Streams& streams);

}  // namespace heddle
