// Between a session and its checkpoints: what is saved of it, and how it goes on from there.
#pragma once

#include <string>
#include <vector>

#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/writer.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

// Everything that a resumed run needs: `NAME` of each parameter, `NAME.exp_avg`, `NAME.exp_avg_sq`, and buffers that steps update.
// The tensors are those of the session, so copy before its next step.
Snapshot SnapshotOf(const Session& session, const Model& model, std::string state);

// The same tensors as they must be in a checkpoint that a job can go on from. `step` is its local graph.
std::vector<TensorInfo> TensorsToResume(const Model& model, const Module& step);

// The state holds on to the checkpoint. The model must outlive it.
SavedState StateOf(const Checkpoint& checkpoint, const Model& model);

}  // namespace heddle::run
