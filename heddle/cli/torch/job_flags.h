// The flags of jobs: each is declared once, for the option that it sets. TorchTitan's spelling where
// it has one.
#pragma once

#include "heddle/api/loop_options.h"
#include "heddle/api/model_options.h"
#include "heddle/api/optimization_options.h"
#include "heddle/api/parallel_options.h"
#include "heddle/cli/cli.h"
#include "heddle/cli/flags/flags.h"

namespace heddle {

// Headings of the flags of a model and of its numerics. A job file for one model has these.
inline constexpr std::string_view kModelSections[] = {"Model", "Model sizes", "Batch and numerics"};

// The model alone, its sizes and initial weights.
void DeclareModel(Flags& flags, ModelOptions& model);
// Also batch, numerics and device. The default device is that of `cluster`, unless it is null.
void DeclareStep(Flags& flags, ModelOptions& model, const std::string* cluster = nullptr);
// Whether a captured step leaves the optimizer out.
void DeclareOptimizer(Flags& flags, bool& without);
void DeclareParallelism(Flags& flags, ParallelOptions& parallel);
// Steps, seed, optimizer and runtime.
void DeclareTraining(Flags& flags, OptimizationOptions& options);
// Data, learning rate and validation, which decide the numbers of a run.
void DeclareLoop(Flags& flags, LoopOptions& loop);
// Checkpoints, metrics and faults.
void DeclareOutput(Flags& flags, LoopOptions& loop);

// These options, with the plan if that is standard input.
Result<ParallelOptions> WithPlan(ParallelOptions parallel, const Streams& streams);

}  // namespace heddle
