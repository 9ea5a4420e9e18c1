// Records runs on a GPU as CUDA graphs.
#pragma once

#include <memory>

#include "heddle/run/runtime/recorder.h"

namespace heddle::run {

// Runs happen on a stream of their own, after the work of the current stream and before its later
// work. Fails where there is no GPU, or where this build cannot record.
Result<std::unique_ptr<RunRecorder>> MakeGraphRecorder(c10::Device device);

}  // namespace heddle::run
