// api::Train: trains a job from beginning to end.
//
//   TrainOptions options;
//   options.parallel.degrees = ...;
//   options.loop.folder = "runs/debug";
//   HEDDLE_TRY(TrainResult result, api::Train(options, observer));
#pragma once

#include "heddle/api/training_job.h"

namespace heddle::api {

// If RANK is set, as by torchrun, this process is that rank of a job. Otherwise it has all ranks. A
// run resumes from the newest checkpoint in its folder. SIGTERM and the first SIGINT save a
// checkpoint and end the run.
Result<TrainResult> Train(const TrainOptions& options, TrainObserver& observer);

}  // namespace heddle::api
