// Records runs on a GPU as CUDA graphs.
#pragma once

#include <memory>

#include "heddle/run/runtime/recorder.h"

namespace heddle::run {

// Makes a recorder. Runs use a separate stream, ordered after earlier and before later work of the
// current stream. Fails without a GPU, or if this build cannot record.
Result<std::unique_ptr<RunRecorder>> MakeGraphRecorder(c10::Device device);

}  // namespace heddle::run
