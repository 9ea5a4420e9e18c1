// Saves a run into checkpoints, and resumes from them.
#pragma once

#include <string>
#include <vector>

#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/writer.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

// Returns everything that a resumed run needs: each parameter `NAME` with the optimizer's state of
// it, such as `NAME.exp_avg`, and buffers that steps update. The snapshot shares the run's tensors,
// so copy it before the next step.
Snapshot SnapshotOf(const GraphRun& run, const Model& model, std::string state);

// Returns the tensors that a checkpoint must have for this job to resume from it. `step` has the
// job's local graphs.
std::vector<TensorInfo> TensorsToResume(const Model& model, const Module& step);

// Returns the state in a checkpoint. It keeps the checkpoint open. The model must outlive it.
SavedState StateOf(const Checkpoint& checkpoint, const Model& model);

}  // namespace heddle::run
