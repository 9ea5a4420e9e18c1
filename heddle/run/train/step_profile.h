// StepProfile: a trace of some steps, written by libtorch's profiler in Chrome's format.
//
// It contains the calls of ATen on the host, allocations, transfers and waits of rank processes
// and, on a GPU, the kernels and copies on the device, also those of replayed CUDA graphs. Each
// process writes the trace of its rank. A trace exists under its name when it is complete.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <c10/core/Device.h>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace at {
struct RecordFunction;
}

namespace heddle::run {

// `count` steps from step `first` on; steps count from 1.
struct ProfiledSteps {
  int64_t first = 0;
  int64_t count = 0;
};
// Parses `START:COUNT`. `COUNT` alone selects steps after warm-up and after CUDA graphs are
// recorded.
Result<ProfiledSteps> ParseProfiledSteps(std::string_view text);

// The process that is traced. The trace states these facts, so that a reader of a folder can tell
// whether it has all ranks of one run.
struct ProfiledRank {
  int64_t rank = 0;
  int64_t world_size = 1;
  // The same text on all ranks of a run, and different for each run.
  std::string run = {};
  // Bytes that are allocated during the whole trace: parameters and optimizer state.
  Bytes held;
};

class StepProfile {
 public:
  // Writes the trace into `folder`, to a file named after the steps and the rank.
  StepProfile(ProfiledSteps steps, std::string folder, c10::Device device);
  ~StepProfile();

  void SetRank(ProfiledRank rank) { rank_ = std::move(rank); }

  // Starts and ends the trace. Call it before the first step, with the number of completed steps,
  // and after every step. `last` ends it in any case.
  Status After(int64_t step, bool last = false);
  // Whether the trace begins or ends after this step. The next step must not have started then.
  bool is_edge(int64_t step) const {
    return step + 1 == steps_.first || step + 1 == steps_.first + steps_.count;
  }
  // Path of the trace; empty until it is written.
  const std::string& path() const { return path_; }

 private:
  Status Write(int64_t step);
  // Ends the mark of a step, and begins the mark of the next one.
  void Mark(int64_t step);

  ProfiledSteps steps_;
  std::string folder_;
  c10::Device device_;
  ProfiledRank rank_;
  bool running_ = false;
  // The mark of the current step; null on GPUs, whose steps the host does not follow.
  std::unique_ptr<at::RecordFunction> mark_;
  std::string path_;
};

}  // namespace heddle::run
